#include "base/log/crash.hpp"

#include <dlfcn.h>
#include <execinfo.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/bytes/control_characters.hpp"
#include "base/log/current_call.hpp"
#include "base/log/log.hpp"
#include "base/log/standard_error.hpp"

namespace shared_tensor {

namespace {

constexpr std::size_t kSignalStackBytes = std::size_t{64} << 10;
constexpr int kLogMs = 50;
constexpr int kMaxFrames = 64;
constexpr unsigned kEndSeconds = 2;     // for before_end and all lines
constexpr std::size_t kMaxField = 256;  // bytes of a field of the last line

std::atomic<bool> installed{false};
std::atomic<void (*)() noexcept> before_end{nullptr};
std::atomic<int> reported_to{-1};
std::atomic<bool> is_ending{false};
std::atomic<int> ending_signal{0};
std::array<char, PATH_MAX> program{};  // its path; empty until write_last_line_of_signals()

/// Text of limited size: a signal handler must not allocate.
class Line {
public:
    void add(std::string_view text) noexcept {
        without_controls(text, [this](char c) { put(c); });
    }
    /// The inside of a JSON string, in ASCII.
    void add_escaped(std::string_view text) noexcept {
        for (const char c : text) {
            if (c == '"' || c == '\\') put('\\');
            const bool plain = static_cast<unsigned char>(c) >= 0x20 && static_cast<unsigned char>(c) < 0x7f;
            put(plain ? c : '?');
        }
    }
    void add_number(std::uint64_t number, unsigned base, std::size_t digits = 1) noexcept {
        std::array<char, 24> text{};
        std::size_t at = text.size();
        do {
            text[--at] = "0123456789abcdef"[number % base];
            number /= base;
        } while (number > 0 || text.size() - at < digits);
        add({text.data() + at, text.size() - at});
    }
    std::string_view ended() noexcept {
        space_[size_] = '\n';
        return {space_.data(), size_ + 1};
    }

private:
    void put(char c) noexcept {
        if (size_ < space_.size() - 1) space_[size_++] = c;
    }

    std::array<char, PIPE_BUF> space_{};
    std::size_t size_ = 0;
};

/// `"time":"2026-01-02T03:04:05.678Z","level":"error","message":"` (gmtime() is not async-signal-safe)
void begin_json(Line& line) noexcept {
    using namespace std::chrono;  // NOLINT(google-build-using-namespace)
    const auto now = floor<milliseconds>(system_clock::now());
    const auto today = floor<days>(now);
    const year_month_day date(today);
    const hh_mm_ss<milliseconds> time(now - today);
    line.add(R"({"time":")");
    line.add_number(static_cast<std::uint64_t>(static_cast<int>(date.year())), 10, 4);
    const auto part = [&](const char* before, auto value, std::size_t digits) {
        line.add(before);
        line.add_number(static_cast<std::uint64_t>(value), 10, digits);
    };
    part("-", static_cast<unsigned>(date.month()), 2);
    part("-", static_cast<unsigned>(date.day()), 2);
    part("T", time.hours().count(), 2);
    part(":", time.minutes().count(), 2);
    part(":", time.seconds().count(), 2);
    part(".", time.subseconds().count(), 3);
    line.add(R"(Z","level":"error","message":")");
}

void add_json(Line& line, std::string_view reason, const CurrentCall* call) noexcept {
    begin_json(line);
    line.add_escaped(reason.substr(0, 2 * kMaxField));
    line.add("\"");
    if (call != nullptr) {
        call->for_each_field([&](std::string_view name, std::string_view text) {
            line.add(",\"");
            line.add(name);
            line.add("\":\"");
            line.add_escaped(text.substr(0, kMaxField));
            line.add("\"");
        });
    }
    line.add("}");
}

void add_text(Line& line, std::string_view reason, const CurrentCall* call) noexcept {
    const char* const name = std::strrchr(program.data(), '/');
    line.add(name != nullptr ? name + 1 : program_invocation_short_name);
    line.add(": ");
    line.add(reason.substr(0, 2 * kMaxField));
    if (call == nullptr) return line.add(" outside of any call");
    line.add(" in the function ");
    line.add(call->function.substr(0, kMaxField));
    line.add(", called by ");
    line.add(call->principal.empty() ? "nobody known" : call->principal.substr(0, kMaxField));
    const auto add_field = [&](const char* before, std::string_view text) {
        if (text.empty()) return;
        line.add(before);
        line.add(text.substr(0, kMaxField));
    };
    add_field(", request ", call->request_id);
    add_field(", id ", call->id);
    add_field(", task ", call->task);
    add_field(", traceparent ", call->traceparent);
}

/// "/usr/lib/libx.so+0x1a2b name+0x12": the place in the file, for addr2line, and the nearest name that the file
/// exports.
void add_frame(Line& line, const void* address) noexcept {
    const auto distance = [&](const void* from) {
        return reinterpret_cast<std::uintptr_t>(address) - reinterpret_cast<std::uintptr_t>(from);
    };
    const auto place = [&](std::string_view name, const void* from) {
        line.add_escaped(name.substr(0, kMaxField));
        line.add("+0x");
        line.add_number(distance(from), 16);
    };
    Dl_info found{};
    if (::dladdr(address, &found) == 0 || found.dli_fname == nullptr) {
        line.add("0x");
        return line.add_number(reinterpret_cast<std::uintptr_t>(address), 16);
    }
    // The loader knows the program only by the word that it was started by, such as /proc/self/exe.
    const bool is_program = std::strcmp(found.dli_fname, program_invocation_name) == 0 && program.front() != '\0';
    place(is_program ? program.data() : found.dli_fname, found.dli_fbase);
    if (found.dli_sname == nullptr) return;
    line.add(" ");
    place(found.dli_sname, found.dli_saddr);
}

/// The stack of this thread, one frame a line.
void write_stack() noexcept {
    std::array<void*, kMaxFrames> frames{};
    const int count = ::backtrace(frames.data(), kMaxFrames);
    const bool json = log::format() == log::Format::json;
    for (int i = 0; i < count; ++i) {
        Line line;
        if (json) begin_json(line);
        line.add(json ? "frame " : "  #");
        line.add_number(static_cast<std::uint64_t>(i), 10);
        line.add(" ");
        add_frame(line, frames[static_cast<std::size_t>(i)]);
        if (json) line.add("\"}");
        write_to_standard_error(line.ended(), IfFull::drop);
    }
}

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

void unblock(int signal) noexcept {
    sigset_t only;
    sigemptyset(&only);
    sigaddset(&only, signal);
    ::pthread_sigmask(SIG_UNBLOCK, &only, nullptr);
}

/// Ends the process by the signal that it is ending by. Runs on any thread.
extern "C" void on_end_time_over(int) {
    const int signal = ending_signal.load();
    (void)::signal(signal, SIG_DFL);
    unblock(signal);
    ::raise(signal);
}

/// Ends the process by `signal` in a short time, whatever its threads wait for: dladdr() waits for the lock of the
/// loader, and another thread may hold this lock for ever, in a static initialiser.
void limit_time_to_end(int signal) noexcept {
    ending_signal.store(signal);
    struct sigaction ours {};
    ours.sa_handler = &on_end_time_over;
    ours.sa_flags = SA_ONSTACK;
    sigemptyset(&ours.sa_mask);
    ::sigaction(SIGALRM, &ours, nullptr);
    unblock(SIGALRM);
    ::alarm(kEndSeconds);
}

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

void write_last_line(std::string_view reason) noexcept {
    Line line;
    const CurrentCall* const call = current_call;
    if (log::format() == log::Format::json) {
        add_json(line, reason, call);
    } else {
        add_text(line, reason, call);
    }
    write_to_standard_error(line.ended(), IfFull::drop);
    const int reader = reported_to.load();
    if (reader < 0 || call == nullptr) return;
    const std::string_view name = call->function.substr(0, kMaxField);
    (void)!::write(reader, name.data(), name.size());
}

void report_end_to(int descriptor) noexcept { reported_to.store(descriptor); }

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
        limit_time_to_end(signal);
        if (auto* const work = before_end.load()) work();
        ::poll(nullptr, 0, kLogMs);  // the log thread still runs and writes the queued lines
        write_last_line(reason);
        if (installed.load()) write_stack();
    } else {
        ::poll(nullptr, 0, 20 * kLogMs);  // another thread writes its last line, or write_stack() met damaged memory
    }
    // A fault occurs again when the handler returns. A signal that a process sent does not, so raise it here.
    (void)::signal(signal, SIG_DFL);
    ::raise(signal);
    errno = errno_before;
}

void write_last_line_of_signals(void (*work)() noexcept) noexcept {
    void* frame = nullptr;
    ::backtrace(&frame, 1);  // its first call loads a library, which a signal handler must not
    if (::readlink("/proc/self/exe", program.data(), program.size() - 1) < 0) program.front() = '\0';
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
