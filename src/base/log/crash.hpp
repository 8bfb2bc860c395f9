#pragma once

#include <string_view>

namespace shared_tensor {

/// Writes to standard error why this process ends, and the call that runs on this thread (current_call). Also writes
/// the name of the call's function to the descriptor of report_end_to(). Async-signal-safe; does not block.
void write_last_line(std::string_view reason) noexcept;

/// For a process that another process watches: write_last_line() writes the function's name there too. -1: nowhere.
void report_end_to(int descriptor) noexcept;

/// For programs, not for libraries. SIGSEGV, SIGABRT, SIGFPE and SIGILL still end the process, but first run
/// `before_end` (async-signal-safe code only), write a last line, and then the stack of the thread. A signal that
/// already has a handler, e.g. of a sanitizer, keeps it. A thread that called have_signal_stack() writes the line after
/// a stack overflow too.
void write_last_line_of_signals(void (*before_end)() noexcept) noexcept;

/// Call it in a signal handler. Runs `before_end`, writes the last line (and the stack, if write_last_line_of_signals()
/// was called), and raises the signal with its default action, which ends the process when the handler returns. May be
/// used for other signals too.
void end_by_signal(int signal) noexcept;
/// Writes `reason` instead of the signal's name.
void end_by_signal(int signal, std::string_view reason) noexcept;

/// Gives this thread a stack for signal handlers until the thread ends, if write_last_line_of_signals() was called.
/// Cheap after the first call on a thread.
void have_signal_stack() noexcept;

}  // namespace shared_tensor
