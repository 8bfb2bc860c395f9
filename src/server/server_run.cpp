#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <stdexcept>
#include <system_error>

#include <shared_tensor/server.hpp>

#include "base/system/unique_fd.hpp"

namespace shared_tensor {

namespace {

std::atomic<int> signal_event{-1};

/// Calls only functions that a signal handler may call.
extern "C" void note_ending_signal(int) {
    const int saved = errno;
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = ::write(signal_event.load(), &one, sizeof one);
    errno = saved;
}

/// While it lives, SIGTERM and SIGINT make wait() return. A process may have only one.
class EndingSignals {
public:
    EndingSignals() : event_(::eventfd(0, EFD_CLOEXEC)) {
        if (!event_) throw std::system_error(errno, std::system_category(), "eventfd");
        int none = -1;
        if (!signal_event.compare_exchange_strong(none, event_.get()))
            throw std::logic_error("Server::run(): another server of this process runs already");
        struct sigaction action {};
        action.sa_handler = &note_ending_signal;
        action.sa_flags = SA_RESTART;
        ::sigaction(SIGTERM, &action, &terminate_before_);
        ::sigaction(SIGINT, &action, &interrupt_before_);
    }
    EndingSignals(const EndingSignals&) = delete;
    EndingSignals& operator=(const EndingSignals&) = delete;
    ~EndingSignals() {
        ::sigaction(SIGTERM, &terminate_before_, nullptr);
        ::sigaction(SIGINT, &interrupt_before_, nullptr);
        signal_event.store(-1);
    }

    void wait() const {
        std::uint64_t count = 0;
        while (::read(event_.get(), &count, sizeof count) < 0 && errno == EINTR) {
        }
    }

private:
    const UniqueFd event_;
    struct sigaction terminate_before_ {
    }, interrupt_before_{};
};

}  // namespace

bool Server::run(std::chrono::milliseconds drain_time) {
    {
        const EndingSignals signals;
        start();
        signals.wait();
    }
    return stop(drain_time);
}

}  // namespace shared_tensor
