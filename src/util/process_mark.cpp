#include "util/process_mark.hpp"

#include <pthread.h>

#include <atomic>

namespace shared_tensor {

namespace {

std::atomic<std::uint64_t> forks{0};

std::uint64_t generation() noexcept {
    static const int registered = ::pthread_atfork(nullptr, nullptr, [] { forks.fetch_add(1); });
    static_cast<void>(registered);  // refused for want of memory only, in the first moments of a process
    return forks.load(std::memory_order_relaxed);
}

}  // namespace

ProcessMark::ProcessMark() noexcept : generation_(generation()) {}

bool ProcessMark::is_here() const noexcept { return generation_ == forks.load(std::memory_order_relaxed); }

}  // namespace shared_tensor
