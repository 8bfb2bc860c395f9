#pragma once

#include <mutex>
#include <utility>

#include "util/unique_fd.hpp"

namespace shared_tensor {

/// A descriptor that a forked child does not keep: fork() closes the child's copy, and the child's get() is -1. So a
/// child can neither use nor hold open a socket of its parent, and what a copied object does to its descriptor fails.
/// Thread safety: as a UniqueFd; fork() may run on another thread at any time.
class ProcessFd {
public:
    ProcessFd() = default;
    // NOLINTNEXTLINE(google-explicit-constructor): a descriptor is handed over as it is
    ProcessFd(UniqueFd fd) { take(fd.release()); }
    /// `open` returns a descriptor or -1, and must not block: no fork comes between it and the moment that it is known.
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
    void link();  // under the lock, like the next
    void unlink();

    int fd_ = -1;
    ProcessFd* next_ = nullptr;
    ProcessFd* previous_ = nullptr;
};

/// While one of these lives, a fork() on another thread waits: so that no lock of another library is held by a thread
/// that the child does not have. For code that neither blocks nor forks.
class NoFork {
public:
    NoFork();
    NoFork(const NoFork&) = delete;
    NoFork& operator=(const NoFork&) = delete;
    ~NoFork();
};

}  // namespace shared_tensor
