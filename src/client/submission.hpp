#pragma once

#include <string_view>

#include <nlohmann/json.hpp>

#include <shared_tensor/client_options.hpp>
#include <shared_tensor/detail/call.hpp>
#include <shared_tensor/task.hpp>

namespace shared_tensor::client {

/// The parameters of task.submit around those of the call.
class SubmitArguments final : public CallArguments {
public:
    /// Views; the idempotency key and the task's times are taken from `options`.
    SubmitArguments(std::string_view method, const CallArguments& inner, const CallOptions& options)
        : method_(method), inner_(&inner), options_(&options) {}

    bool empty() const override { return false; }
    void write(ValueWriter params) const override;

private:
    std::string_view method_;
    const CallArguments* inner_;
    const CallOptions* options_;
};

/// With a key of its own if it has none: a submission whose answer was lost can then be repeated without harm.
CallOptions with_key(CallOptions options);

/// Of the submission itself: its key stands in the parameters.
CallOptions of_submission(CallOptions options);

/// Reads a task object. Throws InvalidValue when it is none.
TaskStatus task_status(const ValueReader& reader);

/// Whether a watcher would want to hear about it.
bool is_news(const TaskStatus& before, const TaskStatus& now);

class StatusSlot final : public detail::ResultSlot {
public:
    void read(const ValueReader& reader) override { status = task_status(reader); }
    TaskStatus status;
};

}  // namespace shared_tensor::client
