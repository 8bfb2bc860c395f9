#include "base/log/log.hpp"

#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <spdlog/async_logger.h>
#include <spdlog/details/thread_pool.h>
#include <spdlog/sinks/sink.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>

#include "base/bytes/ids.hpp"
#include "base/concurrency/clock.hpp"
#include "base/concurrency/guarded.hpp"
#include "base/log/repeated_lines.hpp"
#include "base/log/standard_error.hpp"
#include "base/system/fork.hpp"

namespace shared_tensor::log {

namespace {

constexpr std::array<std::string_view, 6> kNames = {"trace", "debug", "info", "warn", "error", "off"};

constinit std::atomic<Level> threshold{Level::info};

constexpr std::chrono::milliseconds kFlushAtExit{1'000};

constexpr std::size_t kNameWidth = 7;
constexpr std::string_view kCut = "...";

/// A line break would fake a log line; an escape sequence would control the terminal.
bool is_control(char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }

/// "2026-01-02T03:04:05.678Z info   text" and a line break. At most PIPE_BUF bytes, which a pipe takes in one piece.
std::string line_of(int level, std::string_view text, std::chrono::system_clock::time_point time) {
    std::string line = iso8601(time);
    const std::string_view name = kNames[static_cast<std::size_t>(level)];
    line.append(" ").append(name).append(kNameWidth - name.size(), ' ');
    const std::string_view shown = shortened(text, PIPE_BUF - line.size() - kCut.size() - 1);
    for (const char c : shown)
        line.push_back(is_control(c) ? ' ' : c);
    if (shown.size() < text.size()) line.append(kCut);
    line.push_back('\n');
    return line;
}

std::string line_now(Level level, std::string_view text) {
    return line_of(static_cast<int>(level), text, std::chrono::system_clock::now());
}

/// Called only by the one thread of the pool, so it needs no lock.
class StandardErrorSink final : public spdlog::sinks::sink {
public:
    /// `dropped` returns how many lines the full queue has dropped so far.
    void count_dropped_by(std::function<std::size_t()> dropped) { dropped_ = std::move(dropped); }

    void log(const spdlog::details::log_msg& message) override {
        say_dropped();
        const SteadyTime now = real_clock().now();
        say_repeated(repeated_.due(now));
        const std::string_view text(message.payload.data(), message.payload.size());
        if (repeated_.is_new(message.level, text, now)) write(line_of(message.level, text, message.time));
    }
    void flush() override {
        say_dropped();
        say_repeated(repeated_.all());
        flushes_.with([](std::uint64_t& count) { ++count; });
        flushes_.notify_all();
    }
    void set_pattern(const std::string&) override {}
    void set_formatter(std::unique_ptr<spdlog::formatter>) override {}

    std::uint64_t flushes() const {
        return flushes_.with([](std::uint64_t count) { return count; });
    }
    bool wait_for_flush(std::uint64_t after, SteadyTime deadline) {
        return flushes_.lock().wait_until(deadline, [&](std::uint64_t count) { return count > after; });
    }

private:
    static void write(const std::string& line) { write_to_standard_error(line, IfFull::wait); }

    void say_dropped() {
        const std::size_t dropped = dropped_();
        if (dropped == said_dropped_) return;
        write(line_now(Level::warn, std::to_string(dropped - said_dropped_) +
                                        " log lines were dropped: standard error was not read"));
        said_dropped_ = dropped;
    }
    static void say_repeated(const std::vector<RepeatedLines::Count>& counts) {
        for (const auto& [level, text, left_out] : counts) {
            write(line_now(static_cast<Level>(level),
                           "(" + std::to_string(left_out) + " more times within 10 s) " + text));
        }
    }

    std::function<std::size_t()> dropped_;
    std::size_t said_dropped_ = 0;
    RepeatedLines repeated_;
    Guarded<std::uint64_t> flushes_{0U};
};

/// Blocks all signals on this thread while it lives. The log thread inherits that: signals are for the program's own
/// threads.
class SignalsBlocked {
public:
    SignalsBlocked() {
        sigset_t all;
        sigfillset(&all);
        ::pthread_sigmask(SIG_SETMASK, &all, &before_);
    }
    SignalsBlocked(const SignalsBlocked&) = delete;
    SignalsBlocked& operator=(const SignalsBlocked&) = delete;
    ~SignalsBlocked() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

private:
    sigset_t before_{};
};

/// The log queue of one process. Not in spdlog's registry, which belongs to the program that uses this library.
struct Queue {
    Queue() : sink(std::make_shared<StandardErrorSink>()) {
        const SignalsBlocked blocked;
        pool = std::make_shared<spdlog::details::thread_pool>(kMaxWaiting, 1,
                                                              [] { ::pthread_setname_np(::pthread_self(), "st-log"); });
        sink->count_dropped_by([queue = pool.get()] { return queue->overrun_counter(); });
        logger = std::make_shared<spdlog::async_logger>("shared_tensor", sink, pool,
                                                        spdlog::async_overflow_policy::overrun_oldest);
        logger->set_level(spdlog::level::trace);
        logger->set_error_handler([](const std::string&) {});  // spdlog's own prints to standard error, may block
    }

    const std::shared_ptr<StandardErrorSink> sink;
    std::shared_ptr<spdlog::details::thread_pool> pool;
    std::shared_ptr<spdlog::async_logger> logger;
};

/// Never destroyed: the destructor would wait for a thread that may be blocked forever.
constinit NeverDestroyed<OfThisProcess<Queue>> current;

Queue& queue() {
    return current.value.get([] {
        static const int kFlushes = std::atexit([] { flush(kFlushAtExit); });
        static_cast<void>(kFlushes);
        return std::make_unique<Queue>();
    });
}

}  // namespace

void set_level(Level level) { threshold.store(level, std::memory_order_relaxed); }
Level level() { return threshold.load(std::memory_order_relaxed); }

Level parse_level(std::string_view name) {
    for (std::size_t i = 0; i < kNames.size(); ++i) {
        if (kNames[i] == name) return static_cast<Level>(i);
    }
    throw std::invalid_argument("unknown log level \"" + std::string(name) +
                                "\": use trace, debug, info, warn, error or off");
}

void write(Level level, std::string_view text) noexcept {
    if (!enabled(level)) return;
    try {
        const std::string_view kept = shortened(text, PIPE_BUF);  // more would be cut anyway when the line is written
        queue().logger->log(static_cast<spdlog::level::level_enum>(level),
                            spdlog::string_view_t(kept.data(), kept.size()));
        return;
    } catch (const std::exception&) {
        // No thread or no memory: written below.
    }
    try {
        write_to_standard_error(line_now(level, text), IfFull::drop);
    } catch (const std::exception&) {
        // There is no memory for the line either.
    }
}

bool flush(std::chrono::milliseconds bound) noexcept {
    Queue* const found = current.value.find();
    if (found == nullptr) return true;
    const std::uint64_t before = found->sink->flushes();
    try {
        auto logger = found->logger;
        found->pool->post_flush(std::move(logger), spdlog::async_overflow_policy::overrun_oldest);
    } catch (const std::exception&) {
        return false;
    }
    return found->sink->wait_for_flush(before, real_clock().now() + bound);
}

}  // namespace shared_tensor::log
