#pragma once

#include <chrono>
#include <cstddef>
#include <list>
#include <optional>
#include <string>
#include <string_view>

#include <shared_tensor/context.hpp>

#include "base/concurrency/clock.hpp"

namespace shared_tensor::processes {

/// A call in this worker process, from the time when its arguments are read.
struct PresentCall {
    std::string_view function;
    std::size_t places;                         ///< the function's concurrency; 0: no limit
    SteadyTime end;                             ///< when nobody waits for it any more
    const Context* context = nullptr;           ///< while its function runs
    std::optional<SteadyTime> ignored_since{};  ///< its end or cancellation, as why_to_end() saw it first

    bool runs() const { return context != nullptr; }
    SteadyTime::duration ignored_for(SteadyTime now) const {
        return ignored_since ? now - *ignored_since : SteadyTime::duration(0);
    }
};

/// While it lives, why_to_end() knows of the call.
class Presence {
public:
    explicit Presence(PresentCall call);
    Presence(const Presence&) = delete;
    Presence& operator=(const Presence&) = delete;
    ~Presence();
    void set_context(const Context* context);

private:
    std::list<PresentCall>::iterator call_;
};

/// A worker process is to end when so many calls have ignored their cancellation, or the end of their time, for
/// kHangTime, or those that have all places of a function with concurrency() for kPlacesHangTime: their threads cannot
/// be ended alone. Calls whose arguments are being read count only if no other call has its function running: they may
/// wait for a lock of that one, such as an interpreter's.
inline constexpr std::size_t kMostHanging = 16;
inline constexpr std::chrono::seconds kHangTime{5}, kPlacesHangTime{60};
/// Why this worker process is to end, for people: "16 of its calls ...". Empty: it goes on. Call it each second, from
/// one thread.
std::string why_to_end(SteadyTime now);

}  // namespace shared_tensor::processes
