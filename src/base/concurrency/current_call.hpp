#pragma once

#include <string_view>

namespace shared_tensor {

/// The call whose function runs on this thread. If the process ends during the call, its last line names it
/// (last_line.hpp).
struct CurrentCall {
    std::string_view function, caller;
    std::string_view request;  ///< its JSON-RPC id as text; empty for a task
    std::string_view task;     ///< the task's id; empty for a call
};

/// The current call of this thread; null between calls. Signal handlers on this thread read it, so it is set last and
/// cleared first.
inline constinit thread_local const CurrentCall* current_call = nullptr;

/// Sets the current call of this thread while this object lives, then restores the previous call.
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
