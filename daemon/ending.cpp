#include "ending.hpp"

#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <stdexcept>
#include <thread>

#include "base/concurrency/clock.hpp"
#include "base/concurrency/guarded.hpp"
#include "base/log/crash.hpp"
#include "base/log/log.hpp"

/// Only exists in a build for coverage.
// NOLINTNEXTLINE(bugprone-reserved-identifier,readability-identifier-naming): gcc's name
extern "C" void __gcov_dump() __attribute__((weak));

namespace shared_tensor::daemon {

namespace {

using std::chrono::milliseconds;

constexpr milliseconds kLogTime{1'000};

/// Never freed: signal handlers read it.
std::atomic<const char*> ready_file{nullptr};

std::atomic<pid_t> owner{0};

/// Does nothing in a child that a plugin forked.
void remove_ready_file() noexcept {
    const char* const path = ready_file.load();
    if (path != nullptr && owner.load() == ::getpid()) ::unlink(path);
}

[[noreturn]] void leave_at_once(int code);

void end_by_exit(const std::string& what) {
    if (owner.load() != ::getpid()) return;
    log::flush(kLogTime);
    write_last_line("ends with code 1, since " + what + " was called");
    leave_at_once(1);
}

[[noreturn]] void leave_at_once(int code) {
    remove_ready_file();
    log::flush(kLogTime);
    if (__gcov_dump != nullptr) __gcov_dump();
    ::_exit(code);
}

sigset_t ending_signals() {
    sigset_t set;
    ::sigemptyset(&set);
    for (const int signal : {SIGTERM, SIGINT, SIGHUP})
        ::sigaddset(&set, signal);
    return set;
}

/// Returns false if no signal came before `deadline`. SIGHUP only calls `on_hangup`.
bool wait_for_signal(
    std::optional<SteadyTime> deadline, const std::function<void()>& on_hangup = [] {}) {
    const sigset_t set = ending_signals();
    for (;;) {
        timespec left{};
        if (deadline) {
            const auto time = std::max(*deadline - real_clock().now(), SteadyTime::duration::zero());
            left.tv_sec = std::chrono::duration_cast<std::chrono::seconds>(time).count();
            left.tv_nsec = std::chrono::nanoseconds(time % std::chrono::seconds(1)).count();
        }
        const int got = ::sigtimedwait(&set, nullptr, deadline ? &left : nullptr);
        if (got == SIGTERM || got == SIGINT) return true;
        if (got == SIGHUP) on_hangup();
        if (got < 0 && errno == EAGAIN) return false;
    }
}

}  // namespace

struct Ending::Asked {
    struct State {
        std::optional<milliseconds> drain_time;  // set when the daemon serves
        bool asked = false;                      // a signal has asked the process to end
        bool hung_up = false;                    // SIGHUP came since wait() last looked
    };
    Guarded<State> state;
};

Ending::Ending() : asked_(std::make_shared<Asked>()) {
    owner.store(::getpid());
    const sigset_t set = ending_signals();
    ::pthread_sigmask(SIG_BLOCK, &set, nullptr);
    (void)std::signal(SIGPIPE, SIG_IGN);
    std::thread([asked = asked_] {
        ::pthread_setname_np(::pthread_self(), "st-signals");
        wait_for_signal(std::nullopt, [&] {
            asked->state.with([](Asked::State& state) { state.hung_up = true; });
            asked->state.notify_all();
        });
        const auto drain_time = asked->state.with([](Asked::State& state) {
            state.asked = true;
            return state.drain_time;
        });
        if (!drain_time) {
            log::info("stopped before it served");
            leave_at_once(0);
        }
        asked->state.notify_all();
        if (wait_for_signal(real_clock().now() + *drain_time + kMoreTime)) {
            log::warn("second signal: stopping at once");
            leave_at_once(1);
        }
        log::warn("stopped; the drain time is over, and something did not end in time");
        leave_at_once(0);
    }).detach();  // ends with the process
}

void Ending::watch_crashes() { write_last_line_of_signals(&remove_ready_file); }

void Ending::owns_ready_file(const std::string& path) { ready_file.store(::strdup(path.c_str())); }

void Ending::watch_exit() {
    owner.store(::getpid());  // a worker process has no Ending
    const auto on_exit_called = [](int status, void*) { end_by_exit("exit(" + std::to_string(status) + ")"); };
    const auto on_quick_exit = [] { end_by_exit("quick_exit()"); };
    if (::on_exit(on_exit_called, nullptr) != 0 || std::at_quick_exit(on_quick_exit) != 0)
        throw std::runtime_error("no memory for a handler of exit()");
}

void Ending::serves(milliseconds drain_time) {
    auto state = asked_->state.lock();
    if (state->asked) state.wait([](const Asked::State&) { return false; });  // st-signals is ending the process
    state->drain_time = drain_time;
}

void Ending::wait(const std::function<void()>& on_hangup) {
    for (;;) {
        {
            auto state = asked_->state.lock();
            state.wait([](const Asked::State& now) { return now.asked || now.hung_up; });
            if (state->asked) return;
            state->hung_up = false;
        }
        on_hangup();
    }
}

void leave(int code) {
    remove_ready_file();
    log::flush(kLogTime);
    (void)std::fflush(nullptr);  // may block for ever on another thread's lock; then st-signals ends the process
    leave_at_once(code);
}

}  // namespace shared_tensor::daemon
