#pragma once

#include <cstdint>
#include <functional>

#include "util/clock.hpp"

namespace shared_tensor {

/// Gives freed heap memory back to the system when a burst of work is over. glibc has an arena for each few threads and
/// keeps there what they freed: after 2,000 calls at once that was 130 MB. Not thread-safe: one thread tends it.
class HeapTrimmer {
public:
    /// `trim` gives back what is free; it takes some milliseconds.
    explicit HeapTrimmer(std::function<void()> trim = &trim_heap) : trim_(std::move(trim)) {}

    struct Load {
        std::uint64_t requests = 0;  ///< since the start
        std::size_t threads = 0;     ///< that serve them now
    };
    /// Now and then. Trims when threads have ended, at most every 10 s, or 5 s after the last request.
    void tend(Load load, SteadyTime now);

private:
    static void trim_heap();

    const std::function<void()> trim_;
    Load last_{};
    SteadyTime request_at_{}, trimmed_at_{};
    bool used_ = false, shrank_ = false;  // since the last trim
};

}  // namespace shared_tensor
