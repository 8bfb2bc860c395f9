#pragma once

#include <pthread.h>
#include <signal.h>
#include <spdlog/async_logger.h>
#include <spdlog/details/thread_pool.h>
#include <spdlog/sinks/sink.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/concurrency/clock.hpp"
#include "base/concurrency/guarded.hpp"

// spdlog's queue and its one thread, for lines of a file that may block. Included only where spdlog is compiled with
// renamed namespaces (src/base/CMakeLists.txt).

namespace shared_tensor::log {

/// Writes lines. Called only by the one thread of a queue.
class LineSink : public spdlog::sinks::sink {
public:
    void flush() final {
        finish();
        flushes_.with([](std::uint64_t& count) { ++count; });
        flushes_.notify_all();
    }
    void set_pattern(const std::string&) final {}
    void set_formatter(std::unique_ptr<spdlog::formatter>) final {}

    std::uint64_t flushes() const {
        return flushes_.with([](std::uint64_t count) { return count; });
    }
    bool wait_for_flush(std::uint64_t after, SteadyTime deadline) {
        return flushes_.lock().wait_until(deadline, [&](std::uint64_t count) { return count > after; });
    }

protected:
    /// Writes what it holds back.
    virtual void finish() = 0;

private:
    Guarded<std::uint64_t> flushes_{0U};
};

/// Blocks all signals on this thread while it lives. The thread of a queue inherits that: signals are for the program's
/// own threads.
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

/// Not in spdlog's registry, which belongs to the program that uses this library. The destructor waits for the thread,
/// which may be blocked for ever. Thread-safe.
class LineQueue {
public:
    /// `thread`: its name, a string literal. When `kept` lines wait, the oldest is dropped for the next one.
    LineQueue(std::shared_ptr<LineSink> sink, const char* thread, std::size_t kept) : sink_(std::move(sink)) {
        const SignalsBlocked blocked;
        pool_ = std::make_shared<spdlog::details::thread_pool>(
            kept, 1, [thread] { ::pthread_setname_np(::pthread_self(), thread); });
        logger_ = std::make_shared<spdlog::async_logger>("shared_tensor", sink_, pool_,
                                                         spdlog::async_overflow_policy::overrun_oldest);
        logger_->set_level(spdlog::level::trace);
        logger_->set_error_handler([](const std::string&) {});  // spdlog's own prints to standard error, may block
    }

    /// `mark` goes to the sink with the line, as the line number of the source. Throws if there is no memory.
    void write(int level, int mark, std::string_view text) {
        logger_->log(spdlog::source_loc{"", mark, ""}, static_cast<spdlog::level::level_enum>(level),
                     spdlog::string_view_t(text.data(), text.size()));
    }
    std::size_t dropped() const { return pool_->overrun_counter(); }

    /// Blocks until the lines queued so far are written, at most for `bound`. False if the time was too short.
    bool flush(std::chrono::milliseconds bound) {
        const std::uint64_t before = sink_->flushes();
        auto logger = logger_;
        pool_->post_flush(std::move(logger), spdlog::async_overflow_policy::overrun_oldest);
        return sink_->wait_for_flush(before, real_clock().now() + bound);
    }

private:
    const std::shared_ptr<LineSink> sink_;
    std::shared_ptr<spdlog::details::thread_pool> pool_;
    std::shared_ptr<spdlog::async_logger> logger_;
};

}  // namespace shared_tensor::log
