#pragma once

#include <chrono>
#include <cstdint>
#include <thread>

#include "util/clock.hpp"
#include "util/unique_fd.hpp"

namespace shared_tensor::http {

/// What the poller's thread tells. `key` is what the descriptor was added with.
class PollerEvents {
public:
    virtual ~PollerEvents() = default;
    virtual void on_event(std::uint64_t key, std::uint32_t events) = 0;
    /// The time came that the last on_tick asked for, or wake() was called. Answers when it wants to be called next.
    virtual SteadyTime on_tick(SteadyTime now) = 0;
};

/// One thread around epoll. Descriptors of connections are armed for one event at a time (EPOLLONESHOT), so that an
/// event hands its connection to exactly one owner.
/// Thread safety: all methods from any thread; descriptors leave epoll by being closed or by remove().
class Poller {
public:
    Poller();
    ~Poller();  ///< stop()

    void start(PollerEvents& events);
    /// Waits for the thread to end; no event comes afterwards.
    void stop();
    /// Calls on_tick soon.
    void wake();

    enum class For {
        listening,  ///< readable, until removed
        request,    ///< readable or hung up, once
        hangup,     ///< the peer closed or reset, once; not readable
    };
    /// False when the kernel refuses (out of memory or of watches).
    bool add(int fd, std::uint64_t key, For what);
    bool rearm(int fd, std::uint64_t key, For what);
    void remove(int fd);

private:
    void run(PollerEvents& events, const std::stop_token& stop);
    bool control(int operation, int fd, std::uint64_t key, For what);

    UniqueFd epoll_;
    UniqueFd wake_;
    std::jthread thread_;
};

}  // namespace shared_tensor::http
