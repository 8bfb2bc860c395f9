#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace shared_tensor::detail {

/// Limit of an error's text, in bytes. The text of an exception can have any size.
inline constexpr std::size_t kMaxErrorText = 4096;

/// Returns `text`, or its beginning and a remark that it was cut. At most `most` bytes; never cuts a UTF-8 character.
inline std::string bounded_text(std::string_view text, std::size_t most = kMaxErrorText) {
    if (text.size() <= most) return std::string(text);
    const std::string remark = " ... (cut: the text has " + std::to_string(text.size()) + " bytes)";
    std::size_t end = most - (remark.size() < most ? remark.size() : most);
    while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80)
        --end;
    return std::string(text.substr(0, end)) + remark;
}

}  // namespace shared_tensor::detail
