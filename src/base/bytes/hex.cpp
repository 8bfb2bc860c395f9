#include "base/bytes/hex.hpp"

namespace shared_tensor {

void append_hex(std::span<const std::byte> bytes, std::string& text) {
    static constexpr char kDigits[] = "0123456789abcdef";
    for (const std::byte byte : bytes) {
        text.push_back(kDigits[std::to_integer<unsigned>(byte) >> 4]);
        text.push_back(kDigits[std::to_integer<unsigned>(byte) & 15]);
    }
}

std::string hex(std::span<const std::byte> bytes) {
    std::string text;
    text.reserve(bytes.size() * 2);
    append_hex(bytes, text);
    return text;
}

std::string uuid_text(std::span<const std::byte, 16> bytes) {
    std::string text = hex(bytes);
    for (const std::size_t place : {8U, 13U, 18U, 23U})
        text.insert(place, 1, '-');
    return text;
}

}  // namespace shared_tensor
