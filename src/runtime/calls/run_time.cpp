#include "runtime/calls/run_time.hpp"

#include <algorithm>

#include "base/concurrency/spin.hpp"

namespace shared_tensor::runtime {

/// If two threads call it at once, one run may be missing from the mean: the mean is only an estimate.
void RunTime::note(std::chrono::nanoseconds run, bool failed) {
    runs_.record(run);
    if (failed) failures_.fetch_add(1, std::memory_order_relaxed);
    constexpr std::int64_t kWeight = 8;                       // a new run counts an eighth
    constexpr std::int64_t kMostNs = std::int64_t{10} << 20;  // a run that hung is forgotten after some 30 brief runs
    const std::int64_t mean = mean_ns_.load(std::memory_order_relaxed);
    const std::int64_t now = std::clamp<std::int64_t>(run.count(), 0, kMostNs);
    mean_ns_.store(mean + (now - mean) / kWeight, std::memory_order_relaxed);
}

bool RunTime::brief() const { return mean_ns_.load(std::memory_order_relaxed) < kSpinUs * std::int64_t{1000}; }

}  // namespace shared_tensor::runtime
