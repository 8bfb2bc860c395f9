#include "base/bytes/latency_histogram.hpp"

#include <algorithm>
#include <bit>
#include <limits>

namespace shared_tensor {

// Each value below 16 ns has its own bucket. Above that, the four bits after the leading bit select the bucket.
std::size_t LatencyHistogram::bucket_of(std::uint64_t value) {
    if (value < kSteps) return value;
    const std::size_t power = static_cast<std::size_t>(std::bit_width(value)) - 1;
    const std::size_t step = static_cast<std::size_t>(value >> (power - 4)) & (kSteps - 1);
    return std::min(kSteps * (power - 3) + step, kBuckets - 1);
}

std::uint64_t LatencyHistogram::upper_end(std::size_t bucket) {
    if (bucket < kSteps) return bucket;
    if (bucket == kBuckets - 1) return std::numeric_limits<std::uint64_t>::max();  // also counts all longer durations
    const std::size_t power = bucket / kSteps + 3;
    const std::uint64_t step = bucket % kSteps;
    return ((kSteps + step + 1) << (power - 4)) - 1;
}

void LatencyHistogram::record(std::chrono::nanoseconds duration) {
    const auto value = static_cast<std::uint64_t>(std::max<std::int64_t>(duration.count(), 0));
    counts_[bucket_of(value)].fetch_add(1, std::memory_order_relaxed);
    auto greatest = greatest_.load(std::memory_order_relaxed);
    while (value > greatest && !greatest_.compare_exchange_weak(greatest, value, std::memory_order_relaxed)) {
    }
}

Latencies LatencyHistogram::summary() const {
    std::array<std::uint64_t, kBuckets> counts;
    Latencies latency;
    for (std::size_t i = 0; i < kBuckets; ++i) {
        counts[i] = counts_[i].load(std::memory_order_relaxed);
        latency.count += counts[i];
    }
    const std::uint64_t greatest = greatest_.load(std::memory_order_relaxed);
    const auto percentile = [&](std::uint64_t percent) {
        const std::uint64_t rank = (latency.count * percent + 99) / 100;
        std::uint64_t seen = 0;
        for (std::size_t i = 0; i < kBuckets; ++i) {
            seen += counts[i];
            if (seen >= rank) return std::chrono::nanoseconds(std::min(upper_end(i), greatest));
        }
        return std::chrono::nanoseconds(greatest);
    };
    if (latency.count == 0) return latency;
    latency.p50 = percentile(50);
    latency.p90 = percentile(90);
    latency.p99 = percentile(99);
    latency.max = std::chrono::nanoseconds(greatest);
    return latency;
}

}  // namespace shared_tensor
