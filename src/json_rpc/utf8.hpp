#pragma once

#include <algorithm>
#include <cstddef>
#include <string_view>

namespace shared_tensor::json_rpc {

/// The bytes at the front of a text that make one character, or that a reader should replace by one U+FFFD.
struct Utf8Prefix {
    std::size_t size;
    bool valid;
};

/// Looks at the first character of a non-empty text by table 3-7 of the Unicode standard: no overlong forms, no
/// surrogates, nothing beyond U+10FFFF. What is invalid is measured as Unicode advises: the longest part that could
/// have begun a character, at least one byte.
inline Utf8Prefix utf8_prefix(std::string_view text) {
    const auto byte = [text](std::size_t i) { return static_cast<unsigned char>(text[i]); };
    const auto lead = byte(0);
    if (lead < 0x80) return {1, true};
    if (lead < 0xC2 || lead > 0xF4) return {1, false};
    const std::size_t size = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
    const unsigned char low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
    const unsigned char high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
    const auto available = std::min(size, text.size());
    for (std::size_t i = 1; i < available; ++i) {
        const bool continues = i == 1 ? byte(i) >= low && byte(i) <= high : (byte(i) & 0xC0) == 0x80;
        if (!continues) return {i, false};
    }
    return {available, available == size};
}

}  // namespace shared_tensor::json_rpc
