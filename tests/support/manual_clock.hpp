#pragma once

#include <chrono>

#include "base/concurrency/clock.hpp"
#include "base/concurrency/guarded.hpp"

namespace shared_tensor::test {

/// A clock that only advance() moves. Thread-safe.
class ManualClock final : public Clock {
public:
    SteadyTime now() const override { return SteadyTime(std::chrono::hours(1)) + elapsed(); }
    SystemTime wall_time() const override {
        return SystemTime(std::chrono::seconds(1'700'000'000)) +
               std::chrono::duration_cast<SystemTime::duration>(elapsed());
    }
    void advance(SteadyTime::duration by) {
        elapsed_.with([&](SteadyTime::duration& elapsed) { elapsed += by; });
    }

private:
    SteadyTime::duration elapsed() const {
        return elapsed_.with([](const SteadyTime::duration& elapsed) { return elapsed; });
    }
    Guarded<SteadyTime::duration> elapsed_{SteadyTime::duration::zero()};
};

}  // namespace shared_tensor::test
