#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace shared_tensor {

/// Raw bytes as a parameter or result, sent as base64.
struct Bytes {
    std::vector<std::byte> data;
    bool operator==(const Bytes&) const = default;
};

/// Encodes as base64 (RFC 4648 section 4), padded.
inline std::string encode_base64(std::span<const std::byte> bytes) {
    static constexpr char kAlphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    std::string text((bytes.size() + 2) / 3 * 4, '=');
    std::size_t out = 0;
    for (std::size_t i = 0; i < bytes.size(); i += 3) {
        const std::size_t left = bytes.size() - i;
        const auto byte = [&](std::size_t k) { return k < left ? std::to_integer<std::uint32_t>(bytes[i + k]) : 0U; };
        const std::uint32_t group = byte(0) << 16 | byte(1) << 8 | byte(2);
        text[out] = kAlphabet[group >> 18];
        text[out + 1] = kAlphabet[group >> 12 & 63];
        if (left > 1) text[out + 2] = kAlphabet[group >> 6 & 63];
        if (left > 2) text[out + 3] = kAlphabet[group & 63];
        out += 4;
    }
    return text;
}

namespace detail {

/// Returns 0 to 63, or 255 for a character outside the alphabet.
constexpr std::uint8_t base64_digit(char c) {
    if (c >= 'A' && c <= 'Z') return static_cast<std::uint8_t>(c - 'A');
    if (c >= 'a' && c <= 'z') return static_cast<std::uint8_t>(c - 'a' + 26);
    if (c >= '0' && c <= '9') return static_cast<std::uint8_t>(c - '0' + 52);
    if (c == '+') return 62;
    if (c == '/') return 63;
    return 255;
}

}  // namespace detail

/// Returns the number of bytes that a padded base64 text holds; nullopt if it cannot be base64 by its length.
inline std::optional<std::size_t> decoded_base64_size(std::string_view text) {
    if (text.size() % 4 != 0) return std::nullopt;
    std::size_t padding = 0;
    if (!text.empty() && text.back() == '=') padding = text[text.size() - 2] == '=' ? 2 : 1;
    return text.size() / 4 * 3 - padding;
}

/// Decodes into `out`, which must have room for decoded_base64_size(text) bytes. Returns false if the text is not
/// canonical base64.
inline bool decode_base64_into(std::string_view text, std::byte* out) {
    const auto size = decoded_base64_size(text);
    if (!size) return false;
    std::size_t written = 0;
    for (std::size_t i = 0; i < text.size(); i += 4) {
        const std::size_t here = *size - written < 3 ? *size - written : 3;  // bytes in this group
        std::uint32_t group = 0;
        for (std::size_t k = 0; k < 4; ++k) {
            const std::uint8_t digit = k <= here ? detail::base64_digit(text[i + k]) : 0;
            if (digit == 255) return false;
            group = group << 6 | digit;
        }
        if ((here < 3 && (group & 0xFF) != 0) || (here < 2 && (group & 0xFFFF) != 0)) return false;
        for (std::size_t k = 0; k < here; ++k)
            out[written++] = static_cast<std::byte>(group >> (16 - 8 * k));
    }
    return true;
}

inline std::optional<std::vector<std::byte>> decode_base64(std::string_view text) {
    const auto size = decoded_base64_size(text);
    if (!size) return std::nullopt;
    std::vector<std::byte> bytes(*size);
    if (!decode_base64_into(text, bytes.data())) return std::nullopt;
    return bytes;
}

}  // namespace shared_tensor
