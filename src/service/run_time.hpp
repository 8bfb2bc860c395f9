#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

#include "util/latency_histogram.hpp"

namespace shared_tensor::service {

/// How long the runs of a function take, and how many failed. Thread safety: all methods from any thread.
class RunTime {
public:
    void note(std::chrono::nanoseconds run, bool failed = false);
    /// Its outcome is worth looking for before one sleeps. Nothing seen yet is taken for brief.
    bool brief() const;

    Latencies latencies() const { return runs_.summary(); }
    std::uint64_t failures() const { return failures_.load(std::memory_order_relaxed); }

private:
    std::atomic<std::int64_t> mean_ns_{0};  ///< recent ones counting more
    std::atomic<std::uint64_t> failures_{0};
    LatencyHistogram runs_;
};

}  // namespace shared_tensor::service
