#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>

#include "base/bytes/latency_histogram.hpp"
#include "base/concurrency/spin.hpp"

namespace shared_tensor::runtime {

/// How long the runs of a function take, and how many failed. Thread safety: all methods from any thread.
class RunTime {
public:
    /// If two threads call it at once, one run may be missing from the mean: the mean is only an estimate.
    void note(std::chrono::nanoseconds run, bool failed = false) {
        runs_.record(run);
        if (failed) failures_.fetch_add(1, std::memory_order_relaxed);
        constexpr std::int64_t kWeight = 8;                       // a new run counts an eighth
        constexpr std::int64_t kMostNs = std::int64_t{10} << 20;  // a run that hung is forgotten after 30 brief runs
        const std::int64_t mean = mean_ns_.load(std::memory_order_relaxed);
        const std::int64_t now = std::clamp<std::int64_t>(run.count(), 0, kMostNs);
        mean_ns_.store(mean + (now - mean) / kWeight, std::memory_order_relaxed);
    }
    /// Whether runs are so short that a waiter should check for the outcome before it sleeps. True before the first
    /// run.
    bool brief() const { return mean_ns_.load(std::memory_order_relaxed) < kSpinUs * std::int64_t{1000}; }

    Latencies latencies() const { return runs_.summary(); }
    std::uint64_t failures() const { return failures_.load(std::memory_order_relaxed); }

private:
    std::atomic<std::int64_t> mean_ns_{0};  ///< weighted: recent runs count more
    std::atomic<std::uint64_t> failures_{0};
    LatencyHistogram runs_;
};

}  // namespace shared_tensor::runtime
