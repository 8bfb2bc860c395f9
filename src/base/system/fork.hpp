#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>

#include "base/system/unique_fd.hpp"

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

/// A T for each process. A forked child never touches its copy of the parent's T: a thread of the parent may have held
/// a lock in it, and its threads and connections belong to the parent. The child makes a T of its own at first use; the
/// copy is leaked. Thread safety: get() and find() from any thread.
template <class T>
class OfThisProcess {
public:
    constexpr OfThisProcess() = default;
    OfThisProcess(const OfThisProcess&) = delete;
    OfThisProcess& operator=(const OfThisProcess&) = delete;
    ~OfThisProcess() {
        if (Made* const made = current_.load(); made != nullptr && made->process.is_here()) delete made;
    }

    /// The T of this process. If there is none, calls `make`, which returns a std::unique_ptr<T>. Two threads may both
    /// make one; the second is destroyed. Exceptions of `make` are passed on.
    template <class Make>
    T& get(Make make) {
        Made* found = current_.load(std::memory_order_acquire);
        while (found == nullptr || !found->process.is_here()) {
            auto made = std::make_unique<Made>(Made{ProcessMark(), make()});
            if (current_.compare_exchange_strong(found, made.get())) return *made.release()->value;
        }
        return *found->value;
    }
    /// Null if this process has made none.
    T* find() const {
        Made* const found = current_.load(std::memory_order_acquire);
        return found != nullptr && found->process.is_here() ? found->value.get() : nullptr;
    }

private:
    struct Made {
        const ProcessMark process;
        std::unique_ptr<T> value;
    };
    std::atomic<Made*> current_{nullptr};
};

/// For statics that must not be destroyed at the end of the process, because other statics may still use them.
template <class T>
union NeverDestroyed {
    constexpr NeverDestroyed() : value() {}
    ~NeverDestroyed() {}  // NOLINT(modernize-use-equals-default): a defaulted destructor would be deleted
    T value;
};

/// A shared_ptr whose object is destroyed only in the process that made it. A forked child leaks its copy.
template <class T>
std::shared_ptr<T> shared_in_its_process(T* object) {
    return std::shared_ptr<T>(object, [process = ProcessMark()](T* made) {
        if (process.is_here()) delete made;
    });
}

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
