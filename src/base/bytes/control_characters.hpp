#pragma once

#include <cstddef>
#include <string_view>

// A line break in a text would fake a line of a log. Other control characters begin sequences that control a terminal,
// also U+0080 to U+009F, which have two bytes in UTF-8.

namespace shared_tensor {

/// The bytes of the control character at the beginning of `text`, which is UTF-8; 0 if it begins with none.
constexpr std::size_t control_length(std::string_view text) noexcept {
    const auto byte = [&](std::size_t at) { return at < text.size() ? static_cast<unsigned char>(text[at]) : 0xFFU; };
    if (byte(0) < 0x20 || byte(0) == 0x7F) return 1;
    return byte(0) == 0xC2 && byte(1) >= 0x80 && byte(1) <= 0x9F ? 2 : 0;
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
