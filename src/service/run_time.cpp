#include "service/run_time.hpp"

#include <algorithm>

#include "util/spin.hpp"

namespace shared_tensor::service {

/// Two that note at once may lose one of their notes: it is a guess all the same.
void RunTime::note(std::chrono::nanoseconds run, bool failed) {
    runs_.record(run);
    if (failed) failures_.fetch_add(1, std::memory_order_relaxed);
    constexpr std::int64_t kWeight = 8;  // of a new one: an eighth
    constexpr std::int64_t kMostNs = std::int64_t{10}
                                     << 20;  // one that hung is forgotten within some thirty brief ones
    const std::int64_t mean = mean_ns_.load(std::memory_order_relaxed);
    const std::int64_t now = std::clamp<std::int64_t>(run.count(), 0, kMostNs);
    mean_ns_.store(mean + (now - mean) / kWeight, std::memory_order_relaxed);
}

bool RunTime::brief() const { return mean_ns_.load(std::memory_order_relaxed) < kSpinUs * std::int64_t{1000}; }

}  // namespace shared_tensor::service
