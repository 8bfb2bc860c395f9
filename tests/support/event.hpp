#pragma once

#include <chrono>
#include <cstddef>

#include "util/clock.hpp"
#include "util/guarded.hpp"

namespace shared_tensor::test {

/// When a test that waits for another thread counts as failed.
inline SteadyTime patience() { return real_clock().now() + std::chrono::seconds(30); }

/// Something that happens, possibly several times; threads wait for it instead of sleeping.
class Event {
public:
    void set() {
        auto count = count_.lock();
        ++*count;
        count_.notify_all();  // under the lock: whoever waits may destroy the event as soon as it is given up
    }
    /// False when it did not happen `times` times within half a minute: a failed test, not a hanging one.
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
