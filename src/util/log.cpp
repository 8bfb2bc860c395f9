#include "util/log.hpp"

#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <stdexcept>

#include "util/time_text.hpp"

namespace shared_tensor::log {

namespace {

constexpr std::array<std::string_view, 6> kNames = {"trace", "debug", "info", "warn", "error", "off"};

std::atomic<Level>& threshold() {
    static std::atomic<Level> level{Level::info};
    return level;
}

/// What a pipe takes in one piece, so that lines of several threads and processes do not mix.
constexpr std::size_t kMaxLine = PIPE_BUF;
constexpr std::string_view kCut = "...";

/// A line break would fake a line, an escape would talk to the terminal.
bool is_control(char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }

/// At most `size` bytes, and no half of a character.
std::string_view shortened(std::string_view text, std::size_t size) {
    if (text.size() <= size) return text;
    while (size > 0 && (static_cast<unsigned char>(text[size]) & 0xC0) == 0x80)
        --size;
    return text.substr(0, size);
}

/// A reader that went away must not end the process: the signal is kept off this thread, and taken back if it came.
class NoSigpipe {
public:
    NoSigpipe() {
        sigemptyset(&sigpipe_);
        sigaddset(&sigpipe_, SIGPIPE);
        ::pthread_sigmask(SIG_BLOCK, &sigpipe_, &before_);
    }
    NoSigpipe(const NoSigpipe&) = delete;
    NoSigpipe& operator=(const NoSigpipe&) = delete;
    ~NoSigpipe() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
    void take_back() {
        constexpr timespec kAtOnce{};
        if (sigismember(&before_, SIGPIPE) == 0) ::sigtimedwait(&sigpipe_, nullptr, &kAtOnce);
    }

private:
    sigset_t sigpipe_{}, before_{};
};

void write_whole(const std::string& line) {
    NoSigpipe guard;
    ssize_t written = 0;
    do {
        written = ::write(STDERR_FILENO, line.data(), line.size());
    } while (written < 0 && errno == EINTR);
    if (written < 0 && errno == EPIPE) guard.take_back();
}

}  // namespace

void set_level(Level level) { threshold().store(level, std::memory_order_relaxed); }
Level level() { return threshold().load(std::memory_order_relaxed); }

Level parse_level(std::string_view name) {
    for (std::size_t i = 0; i < kNames.size(); ++i) {
        if (kNames[i] == name) return static_cast<Level>(i);
    }
    throw std::invalid_argument("unknown log level \"" + std::string(name) +
                                "\": use trace, debug, info, warn, error or off");
}

void write(Level level, std::string_view text) {
    if (!enabled(level)) return;
    std::string line = iso8601(std::chrono::system_clock::now());
    line.append(" ").append(kNames[static_cast<std::size_t>(level)]);
    line.append(7 - kNames[static_cast<std::size_t>(level)].size(), ' ');
    const std::string_view shown = shortened(text, kMaxLine - line.size() - kCut.size() - 1);
    for (const char c : shown)
        line.push_back(is_control(c) ? ' ' : c);
    if (shown.size() < text.size()) line.append(kCut);
    line.push_back('\n');
    write_whole(line);
}

}  // namespace shared_tensor::log
