#pragma once

#include <chrono>
#include <cstddef>

#include "base/concurrency/clock.hpp"
#include "base/concurrency/guarded.hpp"

namespace shared_tensor::test {

/// The deadline for a wait for another thread: 30 s from now. A test fails if it is missed.
inline SteadyTime patience() { return real_clock().now() + std::chrono::seconds(30); }

/// Counts occurrences of something. Threads wait for them instead of sleeping. Thread-safe.
class Event {
public:
    void set() {
        auto count = count_.lock();
        ++*count;
        count_.notify_all();  // under the lock: a waiting thread may destroy the event as soon as the lock is released
    }
    /// Waits until set() was called `times` times. Returns false after 30 s, so that a test fails instead of hanging.
    bool wait(std::size_t times = 1) {
        return count_.lock().wait_until(patience(), [&](std::size_t count) { return count >= times; });
    }
    std::size_t count() const {
        return count_.with([](std::size_t count) { return count; });
    }

private:
    Guarded<std::size_t> count_{std::size_t{0}};
};

}  // namespace shared_tensor::test
