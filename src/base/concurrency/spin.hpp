#pragma once

#include <sched.h>

#include <chrono>
#include <limits>

namespace shared_tensor {

/// To wake a sleeping thread costs up to about 50 us if its core became idle, which is more than a small call costs. So
/// a thread that expects a message soon spins before it sleeps. It spins for about two wake-ups, since between two
/// calls of a client its thread wakes once and ours wakes once.
inline constexpr int kSpinUs = 100;

/// How often a thread yields its core before it sleeps. If the process has one core, only a few times: enough for the
/// peer, the thread that the peer calls, and the way back.
inline int yields_of_a_spin() {
    static const int kYields = [] {
        cpu_set_t cores;
        const bool one_core = ::sched_getaffinity(0, sizeof cores, &cores) == 0 && CPU_COUNT(&cores) == 1;
        return one_core ? 4 : std::numeric_limits<int>::max();
    }();
    return kYields;
}

/// Whether `ready()` became true within about kSpinUs. `ready` must be cheap.
template <class Ready>
bool spin_until(Ready ready) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::microseconds(kSpinUs);
    int left = yields_of_a_spin();
    do {
        if (ready()) return true;
        if (left-- <= 0) break;
        ::sched_yield();
    } while (std::chrono::steady_clock::now() < end);
    return ready();
}

}  // namespace shared_tensor
