#include "base/system/fork.hpp"

#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <thread>

namespace shared_tensor {

namespace {

constinit std::atomic<std::uint64_t> forks{0};           // from the first process to this one
constinit std::atomic<std::uint64_t> begun{0}, done{0};  // forks of this process; several may run at once

struct All {
    std::mutex mutex;
    ProcessFd* first = nullptr;
    std::size_t no_forks = 0;  ///< number of living NoFork objects
};
constinit All all;

}  // namespace

/// The forking thread holds the lock from prepare() to parent() or child(), so the child finds a consistent list.
class ForkHandlers {
public:
    /// Polls: a condition variable with waiting threads would be broken in the child.
    static void prepare() {
        begun.fetch_add(1);
        for (all.mutex.lock(); all.no_forks > 0; all.mutex.lock()) {
            all.mutex.unlock();
            std::this_thread::sleep_for(std::chrono::microseconds(100));
        }
    }
    static void parent() {
        done.fetch_add(1);
        all.mutex.unlock();
    }
    /// Only close(): shutdown() would end the connection of the parent too.
    static void child() {
        forks.fetch_add(1);
        done.store(begun.load());
        while (ProcessFd* const one = all.first) {
            ::close(one->fd_);
            one->unlink();
            one->fd_ = -1;
        }
        all.mutex.unlock();
    }
};

namespace {

/// Runs at program start. A fork could interrupt a lazy initialisation.
[[maybe_unused]] const int kInstalled =
    ::pthread_atfork(&ForkHandlers::prepare, &ForkHandlers::parent, &ForkHandlers::child);

}  // namespace

ProcessMark::ProcessMark() noexcept : generation_(forks.load(std::memory_order_relaxed)) {}

bool ProcessMark::is_here() const noexcept { return generation_ == forks.load(std::memory_order_relaxed); }

/// While a fork runs, nobody knows what its child will copy: it counts as a later fork.
ForkMark::ForkMark() noexcept : forks_(done.load()) {}

bool ForkMark::is_alone() const noexcept { return begun.load() == forks_; }

std::mutex& ProcessFd::mutex() { return all.mutex; }

void ProcessFd::take(int fd) {
    const std::scoped_lock lock(mutex());
    fd_ = fd;
    link();
}

void ProcessFd::link() {
    if (fd_ < 0) return;
    next_ = std::exchange(all.first, this);
    if (next_ != nullptr) next_->previous_ = this;
}

void ProcessFd::unlink() {
    if (fd_ < 0) return;
    (previous_ != nullptr ? previous_->next_ : all.first) = next_;
    if (next_ != nullptr) next_->previous_ = previous_;
    next_ = previous_ = nullptr;
}

void ProcessFd::reset() {
    if (fd_ < 0) return;
    const std::scoped_lock lock(mutex());  // a fork between unlink() and close() would give the child a copy
    unlink();
    ::close(std::exchange(fd_, -1));
}

NoFork::NoFork() {
    const std::scoped_lock lock(all.mutex);
    ++all.no_forks;
}

NoFork::~NoFork() {
    const std::scoped_lock lock(all.mutex);
    --all.no_forks;
}

ProcessFd::ProcessFd(ProcessFd&& other) noexcept {
    const std::scoped_lock lock(mutex());
    other.unlink();
    fd_ = std::exchange(other.fd_, -1);
    link();
}

ProcessFd& ProcessFd::operator=(ProcessFd&& other) noexcept {
    if (this == &other) return *this;
    reset();
    const std::scoped_lock lock(mutex());
    other.unlink();
    fd_ = std::exchange(other.fd_, -1);
    link();
    return *this;
}

}  // namespace shared_tensor
