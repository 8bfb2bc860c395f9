#pragma once

#include <cstdint>

namespace shared_tensor {

/// The process that something was made in. A child that was forked has a copy of it, though neither the threads nor the
/// other side of a connection.
/// Forks are counted by pthread_atfork: a child of a raw clone() is not told from its parent. Costs no system call.
/// Thread safety: all methods from any thread.
class ProcessMark {
public:
    ProcessMark() noexcept;
    /// Made in this process, not in one that it was forked from.
    bool is_here() const noexcept;

private:
    std::uint64_t generation_;
};

/// A moment in the life of this process: a child that was forked later has a copy of all that was there by then, and
/// goes on reading memory that this process has given back.
/// Thread safety: all methods from any thread.
class ForkMark {
public:
    ForkMark() noexcept;
    /// This process has not forked since, nor does it just now.
    bool is_alone() const noexcept;

private:
    std::uint64_t forks_;
};

}  // namespace shared_tensor
