#include "base/log/standard_error.hpp"

#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>

namespace shared_tensor {

namespace {

/// Blocks SIGPIPE on this thread. take_back() removes a SIGPIPE that a write raised.
class NoSigpipe {
public:
    NoSigpipe() noexcept {
        sigemptyset(&sigpipe_);
        sigaddset(&sigpipe_, SIGPIPE);
        ::pthread_sigmask(SIG_BLOCK, &sigpipe_, &before_);
    }
    NoSigpipe(const NoSigpipe&) = delete;
    NoSigpipe& operator=(const NoSigpipe&) = delete;
    ~NoSigpipe() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
    void take_back() noexcept {
        constexpr timespec kAtOnce{};
        if (sigismember(&before_, SIGPIPE) == 0) ::sigtimedwait(&sigpipe_, nullptr, &kAtOnce);
    }

private:
    sigset_t sigpipe_{}, before_{};
};

/// A pipe that is ready takes PIPE_BUF bytes without blocking, unless another process fills it first.
bool is_ready(IfFull if_full) noexcept {
    pollfd poll{STDERR_FILENO, POLLOUT, 0};
    int ready = 0;
    do {
        ready = ::poll(&poll, 1, if_full == IfFull::wait ? -1 : 0);
    } while (ready < 0 && errno == EINTR);
    return ready > 0;
}

}  // namespace

bool write_to_standard_error(std::string_view text, IfFull if_full) noexcept {
    const int errno_before = errno;
    NoSigpipe guard;
    while (!text.empty() && is_ready(if_full)) {
        const ssize_t written = ::write(STDERR_FILENO, text.data(), std::min<std::size_t>(text.size(), PIPE_BUF));
        if (written >= 0) {
            text.remove_prefix(static_cast<std::size_t>(written));
        } else if (errno != EINTR && errno != EAGAIN) {
            if (errno == EPIPE) guard.take_back();
            break;
        }
    }
    errno = errno_before;
    return text.empty();
}

}  // namespace shared_tensor
