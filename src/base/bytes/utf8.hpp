#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace shared_tensor {

/// The length of the first character of a text, or of an invalid part that a reader should replace by one U+FFFD.
struct Utf8Prefix {
    std::size_t size;
    bool valid;
};

/// Examines the first character of a non-empty text by table 3-7 of the Unicode standard: no overlong forms, no
/// surrogates, nothing beyond U+10FFFF. An invalid part is measured as Unicode recommends: the longest part that could
/// begin a character, at least one byte.
Utf8Prefix utf8_prefix(std::string_view text);

bool is_utf8(std::string_view text);

/// Appends a code point, at most U+10FFFF and not a surrogate.
void append_utf8(char32_t code_point, std::string& out);

/// How many leading bytes a JSON string may hold unescaped: valid UTF-8 without control characters, quote and
/// backslash.
std::size_t unescaped_prefix(std::string_view text);

}  // namespace shared_tensor
