#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <string_view>

#include "base/log/current_call.hpp"
#include "base/log/log.hpp"

// The two forms of log lines: text for people and JSON for programs. docs/logs.md describes them to the byte.

namespace shared_tensor::log {

/// A line without its time and level.
struct Body {
    std::string text;
    std::size_t same;  ///< lines whose first `same` bytes and level are equal are one line again and again; 0: never
};

/// `call` (null: none) adds its fields in front of those of the entry. The line fits into PIPE_BUF bytes, which a pipe
/// takes in one piece, unless the entry has details.
Body body_of(Format format, const Entry& entry, const CurrentCall* call);

/// The line for `repeated` further lines that begin with `same`.
std::string body_of_repeated(Format format, std::string_view same, std::size_t repeated);

/// The whole line, with its time and level and a line break.
std::string whole_line(Format format, Level level, std::string_view body, std::chrono::system_clock::time_point time);

/// Appends `text` as the inside of a JSON string, in at most `most` bytes; cuts between two characters. Each invalid
/// part (utf8_prefix()) becomes one U+FFFD.
void append_json_text(std::string& out, std::string_view text, std::size_t most);

}  // namespace shared_tensor::log
