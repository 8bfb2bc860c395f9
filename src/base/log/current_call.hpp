#pragma once

#include <string_view>

namespace shared_tensor {

/// The call that a thread works for. Lines that the thread logs meanwhile get these texts as fields, and if the process
/// ends, its last line names them. Empty: not known.
struct CurrentCall {
    std::string_view function, principal;
    std::string_view request_id;  ///< of the HTTP request: X-Request-Id
    std::string_view id;          ///< of the JSON-RPC request, as text
    std::string_view task;        ///< the task's id; empty for a call
    /// Of the call's own span, else of the HTTP request (W3C Trace Context).
    std::string_view traceparent;
    std::string_view parent_span{};  ///< OpenSpan::parent; no field

    /// Calls `use` with the name and the text of each field that is known.
    template <class Use>
    void for_each_field(Use use) const {
        const auto give = [&](std::string_view name, std::string_view text) {
            if (!text.empty()) use(name, text);
        };
        give("function", function);
        give("principal", principal);
        give("request_id", request_id);
        give("id", id);
        give("task", task);
        give("traceparent", traceparent);
    }
};

/// The current call of this thread; null between calls. Signal handlers on this thread read it, so it is set last and
/// cleared first.
inline constinit thread_local const CurrentCall* current_call = nullptr;

/// Sets the current call of this thread while this object lives, then restores the previous call. `call` must outlive
/// it.
class InCall {
public:
    explicit InCall(const CurrentCall& call) noexcept : before_(current_call) { current_call = &call; }
    InCall(const InCall&) = delete;
    InCall& operator=(const InCall&) = delete;
    ~InCall() { current_call = before_; }

private:
    const CurrentCall* before_;
};

}  // namespace shared_tensor
