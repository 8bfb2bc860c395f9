#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <optional>
#include <thread>

#include "util/clock.hpp"
#include "util/guarded.hpp"
#include "util/unique_fd.hpp"

namespace shared_tensor::http {

/// What the poller's thread tells.
class PollerEvents {
public:
    virtual ~PollerEvents() = default;
    virtual void on_listener(std::size_t index) = 0;
    /// Connections are ready, and no thread takes them or those that do are too few: one more is to call take().
    virtual void on_ready() = 0;
    /// The time came that the last on_tick asked for, or wake() was called. Answers when it wants to be called next.
    virtual SteadyTime on_tick(SteadyTime now) = 0;
};

/// A connection that can be read from, or whose peer hung up.
struct ReadyConnection {
    std::uint64_t id;
    bool hung_up;
    bool alone;  ///< no other one was ready
};

/// Waits for connections and listeners. Connections are armed for one event at a time (EPOLLONESHOT).
///
/// Threads that serve connections take them from epoll, several at once, into a queue that all of them share: so a
/// connection never waits behind another one that its thread cannot leave. The poller's own thread waits for listeners,
/// and sees to it that enough threads take: it calls one where none does, and another one where connections wait while
/// fewer threads take than there are cores, or while none of these came back for a millisecond.
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

    /// False when the kernel refuses (out of memory or of watches); so do the next two.
    bool add_listener(int fd, std::size_t index);
    void remove(int fd);
    enum class For {
        request,  ///< readable or hung up
        hangup,   ///< the peer closed or reset; not readable
    };
    bool add(int fd, std::uint64_t id, For what);
    bool rearm(int fd, std::uint64_t id, For what);

    // A thread enters, or is entered by who calls it, takes until nothing comes or it has to wait, and leaves.

    void enter() { takers_.fetch_add(1); }
    /// The next connection; none when nothing came within `wait`.
    std::optional<ReadyConnection> take(std::chrono::milliseconds wait);
    /// True: connections wait in the queue, so another thread has to be called, which has been entered already.
    bool leave();
    std::size_t takers() const { return takers_.load(); }
    /// As many threads take as long as each comes back soon.
    static std::size_t cores();
    /// Counts milliseconds, roughly, while threads take.
    std::uint32_t ticks() const { return ticks_.load(std::memory_order_relaxed); }

private:
    void run(PollerEvents& events, const std::stop_token& stop);
    void dispatch(PollerEvents& events, std::uint64_t key, SteadyTime& next);
    void watch_takers(PollerEvents& events);
    void arm_connections();
    bool has_queued() const;
    bool has_ready() const;

    UniqueFd watched_;      // wake_, listeners, and connections_ while no thread takes
    UniqueFd connections_;  // epoll as well
    UniqueFd wake_;
    Guarded<std::deque<ReadyConnection>> ready_;
    std::atomic<std::size_t> takers_{0};
    std::atomic<std::uint64_t> takes_{0};
    std::atomic<std::uint32_t> ticks_{0};
    // The poller's thread's own:
    bool watching_ = false;
    SteadyTime look_{};  // at the takers again
    std::uint64_t seen_takes_ = 0;
    std::jthread thread_;
};

}  // namespace shared_tensor::http
