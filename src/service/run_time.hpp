#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace shared_tensor::service {

/// How long the runs of a function take, recent ones counting more. Thread safety: all methods from any thread.
class RunTime {
public:
    void note(std::chrono::nanoseconds run);
    /// Its outcome is worth looking for before one sleeps. Nothing seen yet is taken for brief.
    bool brief() const;

private:
    std::atomic<std::int64_t> mean_ns_{0};
};

}  // namespace shared_tensor::service
