#pragma once

#include <string_view>

namespace shared_tensor {

/// Writes to standard error why this process ends now, with the call that runs on this thread (current_call.hpp).
/// Async-signal-safe; does not block.
void write_last_line(std::string_view reason) noexcept;

/// For programs, not for libraries: SIGSEGV, SIGABRT, SIGFPE and SIGILL end the process as before, after `before_end`
/// (async-signal-safe work only) and a last line. A signal that has a handler already, of a sanitizer, keeps it.
/// Threads that call have_signal_stack() write the line after an overflow of their stack too.
void write_last_line_of_signals(void (*before_end)() noexcept) noexcept;

/// Ends the process by this signal, inside its handler: `before_end`, the last line, then the default action once the
/// handler returns. For handlers of other signals too.
void end_by_signal(int signal) noexcept;
/// The same where more is known than the signal's name.
void end_by_signal(int signal, std::string_view reason) noexcept;

/// Gives this thread a stack for signal handlers until it ends, if write_last_line_of_signals() was called. Cheap
/// after the first time.
void have_signal_stack() noexcept;

}  // namespace shared_tensor
