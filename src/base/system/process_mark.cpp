#include "base/system/process_mark.hpp"

#include <pthread.h>

#include <atomic>

namespace shared_tensor {

namespace {

constinit std::atomic<std::uint64_t> forks{0};

constinit std::atomic<std::uint64_t> begun{0}, done{0};  // forks of this process; several may run at once

/// Runs at program start. A fork could interrupt a lazy initialisation.
[[maybe_unused]] const int kInstalled = ::pthread_atfork([] { begun.fetch_add(1); }, [] { done.fetch_add(1); },
                                                         [] {
                                                             forks.fetch_add(1);
                                                             done.store(begun.load());
                                                         });

}  // namespace

ProcessMark::ProcessMark() noexcept : generation_(forks.load(std::memory_order_relaxed)) {}

bool ProcessMark::is_here() const noexcept { return generation_ == forks.load(std::memory_order_relaxed); }

/// While a fork runs, nobody knows what its child will copy: it counts as a later fork.
ForkMark::ForkMark() noexcept : forks_(done.load()) {}

bool ForkMark::is_alone() const noexcept { return begun.load() == forks_; }

}  // namespace shared_tensor
