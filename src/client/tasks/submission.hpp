#pragma once

#include <string_view>

#include <nlohmann/json.hpp>

#include <shared_tensor/client/options.hpp>
#include <shared_tensor/client/task.hpp>
#include <shared_tensor/detail/call.hpp>

namespace shared_tensor::client {

/// The parameters of task.submit, which contain the parameters of the call.
class SubmitArguments final : public CallArguments {
public:
    /// Refers to all arguments. The idempotency key and the task's times are taken from `options`.
    SubmitArguments(std::string_view method, const CallArguments& inner, const CallOptions& options)
        : method_(method), inner_(&inner), options_(&options) {}

    bool empty() const override { return false; }
    void write(ValueWriter params) const override;

private:
    std::string_view method_;
    const CallArguments* inner_;
    const CallOptions* options_;
};

/// Adds an idempotency key if there is none, so that a submission whose answer was lost can be repeated without harm.
CallOptions with_key(CallOptions options);

/// The options of the request that submits the task. Its idempotency key is in the parameters, not in a header field.
CallOptions of_submission(CallOptions options);

/// Reads a task object. Throws InvalidValue if the value is not a task object.
TaskStatus task_status(const ValueReader& reader);

/// True if the state or the progress differs.
bool is_news(const TaskStatus& before, const TaskStatus& now);

}  // namespace shared_tensor::client
