#pragma once

#include <cstdint>

namespace shared_tensor {

/// Remembers the process that made an object. A forked child has a copy of the object, but not its threads or
/// connections.
/// Forks are counted by pthread_atfork, so a child of a raw clone() is not detected. Makes no system call.
/// Thread safety: all methods from any thread.
class ProcessMark {
public:
    ProcessMark() noexcept;
    /// Whether the current process made this mark, rather than a process that it was forked from.
    bool is_here() const noexcept;

private:
    std::uint64_t generation_;
};

/// Remembers a moment of this process. A child that is forked later has a copy of all memory mapped then, and may go on
/// reading memory that this process has given back.
/// Thread safety: all methods from any thread.
class ForkMark {
public:
    ForkMark() noexcept;
    /// True if this process has not forked since, and is not forking now.
    bool is_alone() const noexcept;

private:
    std::uint64_t forks_;
};

}  // namespace shared_tensor
