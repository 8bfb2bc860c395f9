#pragma once

#include <functional>
#include <utility>

namespace shared_tensor {

namespace detail {

inline thread_local const std::function<void()>* on_interruption = nullptr;

}  // namespace detail

/// While it lives, a client that waits on this thread calls `handler` there four times a second, and when a signal
/// interrupts its wait for the network, outside of the signal's context. The handler may request a stop
/// (CallOptions::stop) or cancel a StreamCall; it must not throw and must not start calls. For languages whose handlers
/// of signals run between two steps of the program.
///
/// Thread safety: for the thread that made it, which must also destroy it.
class OnInterruption {
public:
    explicit OnInterruption(std::function<void()> handler)
        : handler_(std::move(handler)), before_(std::exchange(detail::on_interruption, &handler_)) {}
    ~OnInterruption() { detail::on_interruption = before_; }
    OnInterruption(const OnInterruption&) = delete;
    OnInterruption& operator=(const OnInterruption&) = delete;

private:
    const std::function<void()> handler_;
    const std::function<void()>* const before_;
};

}  // namespace shared_tensor
