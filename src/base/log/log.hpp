#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <variant>

namespace shared_tensor::log {

enum class Level { trace, debug, info, warn, error, off };
enum class Format { text, json };

/// A value beside the message of a line. Its texts must live until the line is written.
struct Field {
    std::string_view name;  ///< lower case with "_"
    std::variant<std::string_view, std::int64_t, double> value;
};

struct Entry {
    Level level;
    std::string_view message;
    std::span<const Field> fields{};
    std::string_view details{};  ///< more text, of several lines, such as a stack; at most kMaxDetails are written
    bool folds = true;           ///< equal lines (level, message, function) within 10 s are written once
};
constexpr std::size_t kMaxDetails = std::size_t{64} << 10;

/// Queues a line for the thread st-log, which writes "2026-01-02T03:04:05.678Z info   text" to standard error. The
/// first line starts that thread. If this thread works for a call (InCall), the line gets the call's fields. Control
/// characters become spaces, and a line without details is cut at 4 KiB. Of equal lines within 10 s the first is
/// written and the others are counted. Lines that cannot be written (closed pipe, full disk) are dropped without an
/// error or a signal. Never blocks: while standard error is not read, the last kMaxWaiting lines are kept; older lines
/// are counted and dropped. If no thread can be started, the calling thread writes the line if that does not block.
/// Thread safety: any thread, also in a forked child, which starts a thread of its own.
void write(const Entry& entry) noexcept;
inline void write(Level level, std::string_view text) noexcept { write(Entry{level, text}); }
constexpr std::size_t kMaxWaiting = 1024;

/// Drops all lines below `level`. Default: info. Any thread may call it.
void set_level(Level level);
Level level();
inline bool enabled(Level wanted) { return wanted >= level(); }

/// "trace" ... "off"
std::string_view name_of(Level level);
/// Parses "trace" ... "off". Throws std::invalid_argument that lists the names.
Level parse_level(std::string_view name);

/// Call it before the first line. Default: text.
void set_format(Format format);
Format format();
/// Parses "text" or "json". Throws std::invalid_argument that lists the names.
Format parse_format(std::string_view name);

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

/// Blocks until the lines queued so far are written, at most for `bound`. Also writes the counts of repeated lines. For
/// the end of a process: lines that are still queued then are lost. False if the time was too short.
bool flush(std::chrono::milliseconds bound) noexcept;

}  // namespace shared_tensor::log
