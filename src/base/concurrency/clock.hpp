#pragma once

#include <algorithm>
#include <chrono>
#include <string>
#include <string_view>

namespace shared_tensor {

using SteadyTime = std::chrono::steady_clock::time_point;
using SystemTime = std::chrono::system_clock::time_point;

/// The source of time. Injected, so that tests of expiry do not sleep.
/// Thread safety: implementations may be called from any thread.
class Clock {
public:
    virtual ~Clock() = default;
    virtual SteadyTime now() const = 0;        ///< for durations: never goes back
    virtual SystemTime wall_time() const = 0;  ///< for people and protocol texts only
};

/// The system's clocks.
class RealClock final : public Clock {
public:
    SteadyTime now() const override { return std::chrono::steady_clock::now(); }
    SystemTime wall_time() const override { return std::chrono::system_clock::now(); }
};

/// A process-wide RealClock; never destroyed.
inline const Clock& real_clock() {
    static const auto* clock = new RealClock;
    return *clock;
}

/// Returns `now` + `wait`, with `wait` limited to 0 to 365 days: a longer wait could overflow the clock.
inline SteadyTime later(SteadyTime now, std::chrono::milliseconds wait) {
    return now +
           std::clamp(wait, std::chrono::milliseconds(0), std::chrono::milliseconds(std::chrono::hours(24 * 365)));
}

/// "2026-01-02T03:04:05.678Z" (ISO 8601, UTC, milliseconds).
std::string iso8601(std::chrono::system_clock::time_point time);

/// Parses a duration: "500ms", "30s", "5m", "1h", or "0". A number without a unit is rejected, because some users would
/// mean seconds and others milliseconds. Throws std::invalid_argument that says what to write.
std::chrono::milliseconds parse_duration(std::string_view text);

}  // namespace shared_tensor
