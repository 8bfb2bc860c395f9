#include "util/process_mark.hpp"

#include <pthread.h>

#include <atomic>

namespace shared_tensor {

namespace {

constinit std::atomic<std::uint64_t> forks{0};

constinit std::atomic<std::uint64_t> begun{0}, done{0};  // forks that this process makes, several at once perhaps

/// At the start of the program: a lazy one could be interrupted by a fork.
[[maybe_unused]] const int kInstalled = ::pthread_atfork([] { begun.fetch_add(1); }, [] { done.fetch_add(1); },
                                                         [] {
                                                             forks.fetch_add(1);
                                                             done.store(begun.load());
                                                         });

}  // namespace

ProcessMark::ProcessMark() noexcept : generation_(forks.load(std::memory_order_relaxed)) {}

bool ProcessMark::is_here() const noexcept { return generation_ == forks.load(std::memory_order_relaxed); }

/// Of a fork under way nobody knows yet what its child will have: it counts as one to come.
ForkMark::ForkMark() noexcept : forks_(done.load()) {}

bool ForkMark::is_alone() const noexcept { return begun.load() == forks_; }

}  // namespace shared_tensor
