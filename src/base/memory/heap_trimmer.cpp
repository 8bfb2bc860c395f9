#include "base/memory/heap_trimmer.hpp"

#include <malloc.h>

#include <chrono>
#include <utility>

namespace shared_tensor {

namespace {

constexpr std::chrono::seconds kQuiet{5}, kBetween{10};

}  // namespace

void HeapTrimmer::sweep(Load load, SteadyTime now) {
    if (load.requests != last_.requests) {
        used_ = true;
        request_at_ = now;
    }
    if (load.threads < last_.threads) used_ = shrank_ = true;
    last_ = load;
    const bool is_over = shrank_ || now - request_at_ >= kQuiet;
    if (!used_ || !is_over || now - trimmed_at_ < kBetween) return;
    used_ = shrank_ = false;
    trimmed_at_ = now;
    trim_();
}

void HeapTrimmer::trim_heap() { ::malloc_trim(0); }

}  // namespace shared_tensor
