#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <stop_token>
#include <string_view>

#include <shared_tensor/error.hpp>

namespace shared_tensor {

namespace detail {

class CallStreams;

/// The memory for <shared_tensor/shared_memory.hpp>. Implemented by the server.
class CallMemory {
public:
    virtual ~CallMemory() = default;
    enum class Writers { function, clients_too };
    struct Block {
        void* data = nullptr;  ///< aligned to 64 bytes
        std::shared_ptr<const void> owner;
    };
    /// Allocates `bytes` bytes (more than 0) that callers of the principal can map. Returns null data if there is no
    /// such memory.
    virtual Block take(std::string_view principal, std::size_t bytes, Writers writers) const = 0;
};

}  // namespace detail

enum class LogLevel { debug, info, warn, error };

/// The caller of a function. The views live as long as the call.
struct Caller {
    std::string_view principal;  ///< "uid:1000", "token:NAME"
    std::string_view session;    ///< empty without a session
    std::string_view task;       ///< id of the task that this call runs as, empty for a plain call
    /// W3C Trace Context: this call's span, else its caller's; empty without both. A client that the function uses on
    /// its own thread passes it on by itself.
    std::string_view traceparent{};
};

/// The context of a running call. A shared function may take it as its first parameter, `Context&`.
///
/// Ownership: it belongs to the call; do not use it after the function has returned.
/// Thread safety: any thread may call any method while the function runs. Only sleep_until() and sleep_for() block.
class Context {
public:
    virtual ~Context() = default;

    /// Reports the progress to waiting callers: `fraction` from 0 to 1 (clamped), `message` for people.
    virtual void progress(double fraction, std::string_view message = {}) = 0;

    /// True if the result is no longer wanted (task.cancel, deadline, the caller is gone). Return or throw soon.
    virtual bool cancelled() const = 0;

    /// Is stopped when cancelled() becomes true; for waits that take a token. A callback of the token must not block.
    virtual std::stop_token stop_token() const { return {}; }

    /// Throws CancelledError if cancelled(). Use it to leave a loop.
    void check_cancelled() const {
        if (cancelled()) throw CancelledError();
    }

    /// Sleeps until `time` or until cancelled, whichever is first; returns !cancelled().
    virtual bool sleep_until(std::chrono::steady_clock::time_point time) const = 0;
    bool sleep_for(std::chrono::nanoseconds duration) const {
        return sleep_until(std::chrono::steady_clock::now() +
                           std::chrono::duration_cast<std::chrono::steady_clock::duration>(duration));
    }

    /// The time when the caller stops waiting; time_point::max() if there is no deadline.
    virtual std::chrono::steady_clock::time_point deadline() const = 0;

    virtual const Caller& caller() const = 0;

    /// Writes a line with the function's name to the daemon's log.
    virtual void log(LogLevel level, std::string_view text) const = 0;

    /// The memory for results that cross without a copy; null if no memory is shared. Use it through
    /// <shared_tensor/shared_memory.hpp>.
    virtual const detail::CallMemory* memory() const { return nullptr; }

    /// Counts bytes that were copied for the call elsewhere; the caller's receipt shows them. For functions that pass
    /// calls on to another process.
    virtual void add_copied(std::uint64_t bytes) { static_cast<void>(bytes); }

    /// The streams for the function's Readers and Writers (<shared_tensor/stream.hpp>); null if it has none.
    virtual detail::CallStreams* streams() const { return nullptr; }
};

namespace detail {

/// The context of the shared function that runs on this thread; else null.
inline thread_local const Context* current_context = nullptr;

/// Makes a context the current one while it lives.
class CurrentContext {
public:
    explicit CurrentContext(const Context& context) : before_(current_context) { current_context = &context; }
    ~CurrentContext() { current_context = before_; }
    CurrentContext(const CurrentContext&) = delete;
    CurrentContext& operator=(const CurrentContext&) = delete;

private:
    const Context* const before_;
};

}  // namespace detail

}  // namespace shared_tensor
