#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <string_view>

#include <shared_tensor/error.hpp>

namespace shared_tensor {

namespace detail {

class CallStreams;

/// What <shared_tensor/shared_memory.hpp> is made of. Implemented by the server.
class CallMemory {
public:
    virtual ~CallMemory() = default;
    enum class Writers { function, clients_too };
    struct Block {
        void* data = nullptr;  ///< aligned to 64 bytes
        std::shared_ptr<const void> owner;
    };
    /// Memory of so many bytes, more than 0, that callers of that principal can map; null data where there is none.
    virtual Block take(std::string_view principal, std::size_t bytes, Writers writers) const = 0;
};

}  // namespace detail

enum class LogLevel { debug, info, warn, error };

/// Who called. The views live as long as the call.
struct Caller {
    std::string_view principal;  ///< "uid:1000", "token:NAME"
    std::string_view session;    ///< empty without a session
    std::string_view task;       ///< id of the task that this call runs as, empty for a plain call
};

/// What a shared function may know and say about its own call, as an optional first parameter `Context&`.
///
/// Ownership: belongs to the call; must not be used after the function returned.
/// Thread safety: all methods may be called from any thread of the function while it runs. None blocks.
class Context {
public:
    virtual ~Context() = default;

    /// Tells waiting callers how far the call is: `fraction` from 0 to 1 (clamped), `message` for people.
    virtual void progress(double fraction, std::string_view message = {}) = 0;

    /// True once the result is wanted no more (task.cancel, deadline, the caller is gone). Return or throw soon.
    virtual bool cancelled() const = 0;

    /// Throws CancelledError if cancelled(): the short way out of a loop.
    void check_cancelled() const {
        if (cancelled()) throw CancelledError();
    }

    /// Sleeps until `time` or until cancelled, whichever is first; returns !cancelled().
    virtual bool sleep_until(std::chrono::steady_clock::time_point time) const = 0;
    bool sleep_for(std::chrono::nanoseconds duration) const {
        return sleep_until(std::chrono::steady_clock::now() +
                           std::chrono::duration_cast<std::chrono::steady_clock::duration>(duration));
    }

    /// When the caller stops waiting; time_point::max() when never.
    virtual std::chrono::steady_clock::time_point deadline() const = 0;

    virtual const Caller& caller() const = 0;

    /// A line in the daemon's log, marked with the function's name.
    virtual void log(LogLevel level, std::string_view text) const = 0;

    /// Where tensors are born that are handed over without a copy; null when no memory is shared. Use it through
    /// <shared_tensor/shared_memory.hpp>.
    virtual const detail::CallMemory* memory() const { return nullptr; }

    /// Of a function that takes some (<shared_tensor/stream.hpp>), whose Readers and Writers use it; else null.
    virtual detail::CallStreams* streams() const { return nullptr; }
};

namespace detail {

/// That of the shared function which runs on this thread.
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
