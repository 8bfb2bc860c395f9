#pragma once

#include <exception>
#include <sstream>
#include <string>
#include <string_view>

namespace shared_tensor::log {

enum class Level { trace, debug, info, warn, error, off };

/// Any thread; never blocks. The log thread writes "2026-01-02T03:04:05.678Z info   text" to standard error. Control
/// characters become spaces and a line is cut at 4 KiB. Of equal lines within 10 s the first is written and the others
/// are counted. Lines that cannot be written (closed pipe, full disk) are dropped without an error or a signal. See
/// log_queue.hpp.
void write(Level level, std::string_view text);

/// Drops all lines below `level`. Default: info.
void set_level(Level level);
Level level();
inline bool enabled(Level wanted) { return wanted >= level(); }

/// Parses "trace" ... "off". Throws std::invalid_argument that lists the names.
Level parse_level(std::string_view name);

/// Formats the parts only if the level is enabled. If there is no memory for the line, it is dropped: the line often
/// reports that very lack of memory, and its thread must go on.
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
