#pragma once

#include <string_view>

namespace shared_tensor {

/// The call whose function runs on a thread. A process that ends in the middle of it names it (last_line.hpp).
struct CurrentCall {
    std::string_view function, caller;
    std::string_view request;  ///< its JSON-RPC id as text; empty for a task
    std::string_view task;     ///< its id; empty for a call
};

/// Of this thread; null between calls. Its own signal handlers read it, so it is set last and cleared first.
inline constinit thread_local const CurrentCall* current_call = nullptr;

/// Makes `call` the current one of this thread while this object lives, then the one of before again.
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
