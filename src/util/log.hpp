#pragma once

#include <exception>
#include <sstream>
#include <string>
#include <string_view>

namespace shared_tensor::log {

enum class Level { trace, debug, info, warn, error, off };

/// Any thread; never blocks. A thread of the log writes "2026-01-02T03:04:05.678Z info   text" to standard error:
/// control characters become spaces, a line ends after 4 KiB, and of equal lines within 10 s one is written, the others
/// counted. Lines that cannot be written (nobody reads, full disk) are dropped, without an error or a signal. See
/// log_queue.hpp.
void write(Level level, std::string_view text);

/// Everything below `level` is dropped. Default: info.
void set_level(Level level);
Level level();
inline bool enabled(Level wanted) { return wanted >= level(); }

/// "trace" ... "off"; throws std::invalid_argument that names the choices.
Level parse_level(std::string_view name);

/// Puts the parts together only when the level is on. A line that there is no memory for is left out: what is logged is
/// often that very lack, by a thread that must go on.
template <class... Parts>
void line(Level wanted, const Parts&... parts) noexcept {
    if (!enabled(wanted)) return;
    try {
        std::ostringstream text;
        (text << ... << parts);
        write(wanted, text.view());
    } catch (const std::exception&) {
    }
}

template <class... Parts>
void debug(const Parts&... parts) {
    line(Level::debug, parts...);
}
template <class... Parts>
void info(const Parts&... parts) {
    line(Level::info, parts...);
}
template <class... Parts>
void warn(const Parts&... parts) {
    line(Level::warn, parts...);
}
template <class... Parts>
void error(const Parts&... parts) {
    line(Level::error, parts...);
}

}  // namespace shared_tensor::log
