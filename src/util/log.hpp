#pragma once

#include <sstream>
#include <string>
#include <string_view>

namespace shared_tensor::log {

enum class Level { trace, debug, info, warn, error, off };

/// Lines go to standard error: "2026-01-02T03:04:05.678Z info  text". Any thread; a line is written whole.
/// Control characters become spaces, and a line ends after 4 KiB. One that cannot be written (full disk, closed pipe)
/// is dropped, never an error or a signal.
void write(Level level, std::string_view text);

/// Everything below `level` is dropped. Default: info.
void set_level(Level level);
Level level();
inline bool enabled(Level wanted) { return wanted >= level(); }

/// "trace" ... "off"; throws std::invalid_argument that names the choices.
Level parse_level(std::string_view name);

/// Puts the parts together only when the level is on.
template <class... Parts>
void line(Level wanted, const Parts&... parts) {
    if (!enabled(wanted)) return;
    std::ostringstream text;
    (text << ... << parts);
    write(wanted, text.view());
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
