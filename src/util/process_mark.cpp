#include "util/process_mark.hpp"

#include <pthread.h>

#include <atomic>

namespace shared_tensor {

namespace {

constinit std::atomic<std::uint64_t> forks{0};

/// At the start of the program: a lazy one could be interrupted by a fork.
[[maybe_unused]] const int kInstalled = ::pthread_atfork(nullptr, nullptr, [] { forks.fetch_add(1); });

}  // namespace

ProcessMark::ProcessMark() noexcept : generation_(forks.load(std::memory_order_relaxed)) {}

bool ProcessMark::is_here() const noexcept { return generation_ == forks.load(std::memory_order_relaxed); }

}  // namespace shared_tensor
