#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <optional>
#include <thread>

#include "base/concurrency/clock.hpp"
#include "base/concurrency/guarded.hpp"
#include "base/system/unique_fd.hpp"

namespace shared_tensor::net {

/// Callbacks of the poller, on its thread.
class PollerEvents {
public:
    virtual ~PollerEvents() = default;
    virtual void on_listener(std::size_t index) = 0;
    /// Connections are ready and too few threads take them: one more thread has to call take().
    virtual void on_ready() = 0;
    /// Called at the time that the last call returned, and after wake(). Returns when to call it next.
    virtual SteadyTime on_tick(SteadyTime now) = 0;
};

/// A connection that is readable, or whose peer hung up.
struct ReadyConnection {
    std::uint64_t id;
    bool hung_up;
    bool alone;  ///< no other connection was ready
};

/// Waits for connections and listeners. Connections are armed for one event at a time (EPOLLONESHOT).
///
/// Threads that serve connections take several at once from epoll into a queue that all of them share. So a connection
/// never waits behind another connection whose request takes long. The poller's own thread waits for listeners and
/// calls a thread if no thread takes connections. It calls another thread if connections wait while fewer threads take
/// than there are cores, or while none of them came back for a millisecond.
/// Thread safety: all methods from any thread. Descriptors leave epoll when they are closed, or by remove().
class Poller {
public:
    Poller();
    ~Poller();  ///< stop()

    void start(PollerEvents& events);
    /// Waits for the thread to end; no event comes afterwards.
    void stop();
    /// Calls on_tick soon.
    void wake();

    /// False if the kernel has no memory or no watch left; so are add() and rearm().
    bool add_listener(int fd, std::size_t index);
    void remove(int fd);
    enum class For {
        request,  ///< readable or hung up
        hangup,   ///< the peer closed or reset; not readable
    };
    bool add(int fd, std::uint64_t id, For what);
    bool rearm(int fd, std::uint64_t id, For what);

    // A thread that takes connections calls take() until nothing comes or it has to wait, and then leave(). The thread
    // that calls it has called enter() for it.

    void enter() { takers_.fetch_add(1); }
    /// The next connection; none if nothing came within `wait`.
    std::optional<ReadyConnection> take(std::chrono::milliseconds wait);
    /// True: connections wait in the queue, so the caller has to call another thread; enter() was done for it.
    bool leave();
    std::size_t takers() const { return takers_.load(); }
    /// How many threads take connections if each of them comes back soon.
    static std::size_t cores();
    /// Counts milliseconds, roughly, while threads take connections.
    std::uint32_t ticks() const { return ticks_.load(std::memory_order_relaxed); }

private:
    void run(PollerEvents& events, const std::stop_token& stop);
    void dispatch(PollerEvents& events, std::uint64_t key, SteadyTime& next);
    void watch_takers(PollerEvents& events);
    void arm_connections();
    bool has_queued() const;
    bool has_ready() const;

    UniqueFd watched_;      // epoll of wake_, the listeners, and connections_ while no thread takes
    UniqueFd connections_;  // epoll of all connections
    UniqueFd wake_;
    Guarded<std::deque<ReadyConnection>> ready_;
    std::atomic<std::size_t> takers_{0};
    std::atomic<std::uint64_t> takes_{0};
    std::atomic<std::uint32_t> ticks_{0};
    // Of the poller's thread:
    bool watching_ = false;
    SteadyTime look_{};  // when to look at the takers again
    std::uint64_t seen_takes_ = 0;
    std::jthread thread_;
};

}  // namespace shared_tensor::net
