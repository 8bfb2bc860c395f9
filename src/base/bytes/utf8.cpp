#include "base/bytes/utf8.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace shared_tensor {
namespace {

constexpr std::uint64_t in_all_bytes(std::uint64_t byte) { return byte * 0x0101010101010101; }

/// Whether one of eight bytes is a control character, '"', '\\' or not ASCII. For bytes below 0x80, x - n borrows from
/// bit 7 exactly if x < n. A borrow reaches the next byte only after such a byte was found.
bool has_special(std::uint64_t eight) {
    const auto below = [](std::uint64_t bytes, std::uint64_t limit) { return bytes - in_all_bytes(limit); };
    const std::uint64_t found =
        eight | below(eight, 0x20) | below(eight ^ in_all_bytes('"'), 1) | below(eight ^ in_all_bytes('\\'), 1);
    return (found & in_all_bytes(0x80)) != 0;
}

std::size_t plain_ascii_prefix(std::string_view text) {
    std::size_t size = 0;
    for (std::uint64_t eight = 0; size + sizeof eight <= text.size(); size += sizeof eight) {
        std::memcpy(&eight, text.data() + size, sizeof eight);
        if (has_special(eight)) break;
    }
    const auto stop = std::find_if(text.begin() + static_cast<std::ptrdiff_t>(size), text.end(), [](char byte) {
        const auto value = static_cast<unsigned char>(byte);
        return value < 0x20 || value >= 0x80 || byte == '"' || byte == '\\';
    });
    return static_cast<std::size_t>(stop - text.begin());
}

}  // namespace

Utf8Prefix utf8_prefix(std::string_view text) {
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

bool is_utf8(std::string_view text) {
    for (std::uint64_t eight = 0; !text.empty();) {
        if (text.size() >= sizeof eight) {
            std::memcpy(&eight, text.data(), sizeof eight);
            if ((eight & in_all_bytes(0x80)) == 0) {
                text.remove_prefix(sizeof eight);
                continue;
            }
        }
        const auto [size, valid] = utf8_prefix(text);
        if (!valid) return false;
        text.remove_prefix(size);
    }
    return true;
}

void append_utf8(char32_t code_point, std::string& out) {
    const auto tail = [code_point](int shift) { return static_cast<char>(0x80 | ((code_point >> shift) & 0x3F)); };
    if (code_point < 0x80) {
        out += static_cast<char>(code_point);
    } else if (code_point < 0x800) {
        out += {static_cast<char>(0xC0 | (code_point >> 6)), tail(0)};
    } else if (code_point < 0x10000) {
        out += {static_cast<char>(0xE0 | (code_point >> 12)), tail(6), tail(0)};
    } else {
        out += {static_cast<char>(0xF0 | (code_point >> 18)), tail(12), tail(6), tail(0)};
    }
}

std::size_t unescaped_prefix(std::string_view text) {
    auto size = plain_ascii_prefix(text);
    while (size < text.size() && static_cast<unsigned char>(text[size]) >= 0x80) {
        const auto character = utf8_prefix(text.substr(size));
        if (!character.valid) break;
        size += character.size;
        size += plain_ascii_prefix(text.substr(size));
    }
    return size;
}

}  // namespace shared_tensor
