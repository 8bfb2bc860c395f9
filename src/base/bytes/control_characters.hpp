#pragma once

#include <cstddef>
#include <string_view>

// A line break in a text would fake a line of a log. Other control characters begin sequences that control a terminal,
// also U+0080 to U+009F. U+2028 to U+202E and U+2066 to U+2069 break lines and change the direction of writing: what a
// terminal or a page shows could read as something else (Unicode Technical Report 36, "Bidirectional Text Spoofing").

namespace shared_tensor {

/// The bytes of the control character at the beginning of `text`, which is UTF-8; 0 if it begins with none.
constexpr std::size_t control_length(std::string_view text) noexcept {
    const auto byte = [&](std::size_t at) { return at < text.size() ? static_cast<unsigned char>(text[at]) : 0xFFU; };
    const auto is_in = [](unsigned value, unsigned first, unsigned last) { return first <= value && value <= last; };
    if (byte(0) < 0x20 || byte(0) == 0x7F) return 1;
    if (byte(0) == 0xC2) return is_in(byte(1), 0x80, 0x9F) ? 2 : 0;
    if (byte(0) != 0xE2) return 0;
    const bool is_general = byte(1) == 0x80 && is_in(byte(2), 0xA8, 0xAE);
    return is_general || (byte(1) == 0x81 && is_in(byte(2), 0xA6, 0xA9)) ? 3 : 0;
}

/// Calls `put(char)` for each byte of `text`, but once with a blank for each control character.
template <class Put>
constexpr void without_controls(std::string_view text, Put put) {
    while (!text.empty()) {
        const std::size_t control = control_length(text);
        put(control > 0 ? ' ' : text.front());
        text.remove_prefix(control > 0 ? control : 1);
    }
}

}  // namespace shared_tensor
