#include "base/system/process_fd.hpp"

#include <pthread.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <thread>

namespace shared_tensor {

namespace {

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
        for (all.mutex.lock(); all.no_forks > 0; all.mutex.lock()) {
            all.mutex.unlock();
            std::this_thread::sleep_for(std::chrono::microseconds(100));
        }
    }
    static void parent() { all.mutex.unlock(); }
    /// Only close(): shutdown() would end the connection of the parent too.
    static void child() {
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
