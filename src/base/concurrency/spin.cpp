#include "base/concurrency/spin.hpp"

#include <sched.h>

#include <chrono>
#include <limits>

namespace shared_tensor {

namespace {

long long now_ns() {
    using namespace std::chrono;
    return duration_cast<nanoseconds>(steady_clock::now().time_since_epoch()).count();
}

bool one_core() {
    cpu_set_t cores;
    return ::sched_getaffinity(0, sizeof cores, &cores) == 0 && CPU_COUNT(&cores) == 1;
}

/// How often the thread yields its core before it sleeps.
int patience() {
    constexpr int kOneCore = 4;  // enough for the peer, the thread that the peer calls, and the way back
    static const int kYields = one_core() ? kOneCore : std::numeric_limits<int>::max();
    return kYields;
}

}  // namespace

Spin::Spin() : end_ns_(now_ns() + kSpinUs * 1000LL), left_(patience()) {}

bool Spin::again() {
    if (left_-- <= 0) return false;
    ::sched_yield();
    return now_ns() < end_ns_;
}

}  // namespace shared_tensor
