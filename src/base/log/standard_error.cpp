#include "base/log/standard_error.hpp"

#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstring>

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

constexpr std::size_t kSignalStackBytes = std::size_t{64} << 10;
constexpr int kLogMs = 50;

std::atomic<bool> installed{false};
std::atomic<void (*)() noexcept> before_end{nullptr};
std::atomic<bool> is_ending{false};

/// Text of limited size: a signal handler must not allocate.
class Line {
public:
    void add(std::string_view text) noexcept {
        for (const char c : text.substr(0, space_.size() - 1 - size_))
            space_[size_++] = static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? ' ' : c;
    }
    std::string_view ended() noexcept {
        space_[size_] = '\n';
        return {space_.data(), size_ + 1};
    }

private:
    std::array<char, 1024> space_{};
    std::size_t size_ = 0;
};

std::string_view name_of(int signal) noexcept {
    switch (signal) {
        case SIGSEGV: return "SIGSEGV (invalid memory access)";
        case SIGABRT: return "SIGABRT (abort, or an exception that nobody caught)";
        case SIGFPE: return "SIGFPE (invalid arithmetic)";
        case SIGILL: return "SIGILL (invalid instruction)";
        case SIGBUS: return "SIGBUS (memory without contents)";
        default: return "a signal";
    }
}

extern "C" void on_fatal_signal(int signal) { end_by_signal(signal); }

/// The signal stack of one thread, from its first use until the thread ends.
class SignalStack {
public:
    SignalStack() noexcept {
        stack_t present{};
        if (::sigaltstack(nullptr, &present) != 0 || (present.ss_flags & SS_DISABLE) == 0) return;
        void* const memory = ::mmap(nullptr, kSignalStackBytes, PROT_READ | PROT_WRITE,
                                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (memory == MAP_FAILED) return;
        const stack_t stack{memory, 0, kSignalStackBytes};
        if (::sigaltstack(&stack, nullptr) == 0) {
            memory_ = memory;
        } else {
            ::munmap(memory, kSignalStackBytes);
        }
    }
    SignalStack(const SignalStack&) = delete;
    SignalStack& operator=(const SignalStack&) = delete;
    ~SignalStack() {
        if (memory_ == nullptr) return;
        stack_t none{};
        none.ss_flags = SS_DISABLE;
        if (::sigaltstack(&none, nullptr) == 0) ::munmap(memory_, kSignalStackBytes);
    }

private:
    void* memory_ = nullptr;
};

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

void write_last_line(std::string_view reason) noexcept {
    Line line;
    line.add(program_invocation_short_name);
    line.add(": ");
    line.add(reason);
    if (const CurrentCall* const call = current_call) {
        line.add(" in the function ");
        line.add(call->function);
        line.add(", called by ");
        line.add(call->caller.empty() ? "nobody known" : call->caller);
        if (!call->request.empty()) line.add(", request ");
        line.add(call->request);
        if (!call->task.empty()) line.add(", task ");
        line.add(call->task);
    } else {
        line.add(" outside of any call");
    }
    write_to_standard_error(line.ended(), IfFull::drop);
}

void end_by_signal(int signal) noexcept {
    Line reason;
    reason.add("ended by ");
    reason.add(name_of(signal));
    std::string_view text = reason.ended();
    text.remove_suffix(1);
    end_by_signal(signal, text);
}

void end_by_signal(int signal, std::string_view reason) noexcept {
    const int errno_before = errno;
    if (!is_ending.exchange(true)) {
        if (auto* const work = before_end.load()) work();
        ::poll(nullptr, 0, kLogMs);  // the log thread still runs and writes the queued lines
        write_last_line(reason);
    } else {
        ::poll(nullptr, 0, 20 * kLogMs);  // another thread writes its last line
    }
    // A fault occurs again when the handler returns. A signal that a process sent does not, so raise it here.
    (void)::signal(signal, SIG_DFL);
    ::raise(signal);
    errno = errno_before;
}

void write_last_line_of_signals(void (*work)() noexcept) noexcept {
    before_end.store(work);
    installed.store(true);
    have_signal_stack();
    for (const int signal : {SIGSEGV, SIGABRT, SIGFPE, SIGILL}) {
        struct sigaction present {};
        if (::sigaction(signal, nullptr, &present) != 0 || present.sa_handler != SIG_DFL) continue;
        struct sigaction ours {};
        ours.sa_handler = &on_fatal_signal;
        ours.sa_flags = SA_ONSTACK;
        sigemptyset(&ours.sa_mask);
        ::sigaction(signal, &ours, nullptr);
    }
}

void have_signal_stack() noexcept {
    if (!installed.load(std::memory_order_relaxed)) return;
    static thread_local const SignalStack stack;
    static_cast<void>(stack);
}

}  // namespace shared_tensor
