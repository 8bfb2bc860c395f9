#pragma once

#include <string_view>

namespace shared_tensor {

/// The call whose function runs on this thread. If the process ends during the call, its last line names
/// it.
struct CurrentCall {
    std::string_view function, caller;
    std::string_view request;  ///< its JSON-RPC id as text; empty for a task
    std::string_view task;     ///< the task's id; empty for a call
};

/// The current call of this thread; null between calls. Signal handlers on this thread read it, so it is set last and
/// cleared first.
inline constinit thread_local const CurrentCall* current_call = nullptr;

/// Sets the current call of this thread while this object lives, then restores the previous call.
class InCall {
public:
    explicit InCall(const CurrentCall& call) noexcept : before_(current_call) { current_call = &call; }
    InCall(const InCall&) = delete;
    InCall& operator=(const InCall&) = delete;
    ~InCall() { current_call = before_; }

private:
    const CurrentCall* before_;
};

enum class IfFull {
    wait,  ///< blocks until the reader reads: for a thread that does nothing else
    drop,  ///< does not wait: for any other thread
};

/// Writes to standard error. If the reader has closed the pipe or the disk is full, the text is lost without an error
/// or a signal. A text of at most PIPE_BUF bytes is written in one piece, even if other processes write to the same
/// pipe.
/// Thread safety: any thread; async-signal-safe. False if some of the text was lost.
bool write_to_standard_error(std::string_view text, IfFull if_full) noexcept;

/// Writes to standard error why this process ends, and the call that runs on this thread.
/// Async-signal-safe; does not block.
void write_last_line(std::string_view reason) noexcept;

/// For programs, not for libraries. SIGSEGV, SIGABRT, SIGFPE and SIGILL still end the process, but first run
/// `before_end` (async-signal-safe code only) and write a last line. A signal that already has a handler, e.g. of a
/// sanitizer, keeps it. A thread that called have_signal_stack() writes the line after a stack overflow too.
void write_last_line_of_signals(void (*before_end)() noexcept) noexcept;

/// Call it in a signal handler. Runs `before_end`, writes the last line, and raises the signal with its default action,
/// which ends the process when the handler returns. May be used for other signals too.
void end_by_signal(int signal) noexcept;
/// Writes `reason` instead of the signal's name.
void end_by_signal(int signal, std::string_view reason) noexcept;

/// Gives this thread a stack for signal handlers until the thread ends, if write_last_line_of_signals() was called.
/// Cheap after the first call on a thread.
void have_signal_stack() noexcept;

}  // namespace shared_tensor
