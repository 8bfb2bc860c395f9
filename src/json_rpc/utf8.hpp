#pragma once

#include <cstddef>
#include <string>
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
Utf8Prefix utf8_prefix(std::string_view text);

/// Appends a code point up to U+10FFFF that is no surrogate.
void append_utf8(char32_t code_point, std::string& out);

/// How many bytes at the front a JSON string may hold as they are: valid UTF-8 without controls, quote and backslash.
std::size_t unescaped_prefix(std::string_view text);

}  // namespace shared_tensor::json_rpc
