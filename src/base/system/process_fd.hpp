#pragma once

#include <mutex>
#include <utility>

#include "base/system/unique_fd.hpp"

namespace shared_tensor {

/// A descriptor that a forked child does not keep: fork() closes the child's copy, and get() is -1 there. So a child
/// can neither use a socket of its parent nor keep it open, and system calls on copied objects fail. Thread safety:
/// like UniqueFd; fork() may run on another thread at any time.
class ProcessFd {
public:
    ProcessFd() = default;
    // NOLINTNEXTLINE(google-explicit-constructor): implicit conversion is wanted
    ProcessFd(UniqueFd fd) { take(fd.release()); }
    /// `open` returns a descriptor or -1, and must not block. No fork can happen between `open` and the registration of
    /// its descriptor.
    template <class Open>
    static ProcessFd opened(Open open) {
        ProcessFd made;
        {
            const std::scoped_lock lock(mutex());
            made.fd_ = open();
            made.link();
        }
        return made;
    }
    ProcessFd(ProcessFd&& other) noexcept;
    ProcessFd& operator=(ProcessFd&& other) noexcept;
    ~ProcessFd() { reset(); }

    int get() const { return fd_; }
    explicit operator bool() const { return fd_ >= 0; }
    void reset();

private:
    friend class ForkHandlers;
    static std::mutex& mutex();
    void take(int fd);
    void link();  // under the lock, like unlink()
    void unlink();

    int fd_ = -1;
    ProcessFd* next_ = nullptr;
    ProcessFd* previous_ = nullptr;
};

/// A fork() on another thread waits while one of these objects lives. So no thread that is missing in the child holds a
/// lock of another library. For code that neither blocks nor forks.
class NoFork {
public:
    NoFork();
    NoFork(const NoFork&) = delete;
    NoFork& operator=(const NoFork&) = delete;
    ~NoFork();
};

}  // namespace shared_tensor
