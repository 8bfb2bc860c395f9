#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

#include "base/bytes/latency_histogram.hpp"

namespace shared_tensor::runtime {

/// How long the runs of a function take, and how many failed. Thread safety: all methods from any thread.
class RunTime {
public:
    void note(std::chrono::nanoseconds run, bool failed = false);
    /// Whether runs are so short that a waiter should check for the outcome before it sleeps. True before the first
    /// run.
    bool brief() const;

    Latencies latencies() const { return runs_.summary(); }
    std::uint64_t failures() const { return failures_.load(std::memory_order_relaxed); }

private:
    std::atomic<std::int64_t> mean_ns_{0};  ///< weighted: recent runs count more
    std::atomic<std::uint64_t> failures_{0};
    LatencyHistogram runs_;
};

}  // namespace shared_tensor::runtime
