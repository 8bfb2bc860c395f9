#include "base/log/line_queue.hpp"

#include <pthread.h>
#include <signal.h>
#include <spdlog/async_logger.h>
#include <spdlog/details/thread_pool.h>
#include <spdlog/sinks/sink.h>

#include <cstdint>
#include <string>
#include <utility>

#include "base/concurrency/clock.hpp"
#include "base/concurrency/guarded.hpp"

// The only file that includes spdlog, and with renamed namespaces (src/base/CMakeLists.txt).

namespace shared_tensor::log {

namespace {

/// A sink as spdlog calls it. It counts the flushes, for those who wait for one.
class CountingSink final : public spdlog::sinks::sink {
public:
    explicit CountingSink(std::shared_ptr<LineSink> lines) : lines_(std::move(lines)) {}

    void log(const spdlog::details::log_msg& message) override {
        lines_->write(
            {message.level, message.source.line, {message.payload.data(), message.payload.size()}, message.time});
    }
    void flush() override {
        lines_->finish();
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
    const std::shared_ptr<LineSink> lines_;
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

}  // namespace

/// Not in spdlog's registry, which belongs to the program that uses this library.
class LineQueue::Impl {
public:
    Impl(std::shared_ptr<LineSink> sink, const char* thread, std::size_t kept)
        : sink_(std::make_shared<CountingSink>(std::move(sink))) {
        const SignalsBlocked blocked;
        pool_ = std::make_shared<spdlog::details::thread_pool>(
            kept, 1, [thread] { ::pthread_setname_np(::pthread_self(), thread); });
        logger_ = std::make_shared<spdlog::async_logger>("shared_tensor", sink_, pool_,
                                                         spdlog::async_overflow_policy::overrun_oldest);
        logger_->set_level(spdlog::level::trace);
        logger_->set_error_handler([](const std::string&) {});  // spdlog's own prints to standard error, may block
    }

    void write(int level, int mark, std::string_view text) {
        logger_->log(spdlog::source_loc{"", mark, ""}, static_cast<spdlog::level::level_enum>(level),
                     spdlog::string_view_t(text.data(), text.size()));
    }
    std::size_t dropped() const { return pool_->overrun_counter(); }
    bool flush(std::chrono::milliseconds bound) {
        const std::uint64_t before = sink_->flushes();
        auto logger = logger_;
        pool_->post_flush(std::move(logger), spdlog::async_overflow_policy::overrun_oldest);
        return sink_->wait_for_flush(before, real_clock().now() + bound);
    }

private:
    const std::shared_ptr<CountingSink> sink_;
    std::shared_ptr<spdlog::details::thread_pool> pool_;
    std::shared_ptr<spdlog::async_logger> logger_;
};

LineQueue::LineQueue(std::shared_ptr<LineSink> sink, const char* thread, std::size_t kept)
    : impl_(std::make_unique<Impl>(std::move(sink), thread, kept)) {}
LineQueue::~LineQueue() = default;

void LineQueue::write(int level, int mark, std::string_view text) { impl_->write(level, mark, text); }
std::size_t LineQueue::dropped() const { return impl_->dropped(); }
bool LineQueue::flush(std::chrono::milliseconds bound) { return impl_->flush(bound); }

}  // namespace shared_tensor::log
