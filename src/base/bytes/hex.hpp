#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace shared_tensor {

/// Two lower-case hexadecimal digits per byte.
void append_hex(std::span<const std::byte> bytes, std::string& text);
std::string hex(std::span<const std::byte> bytes);

/// Formats a UUID (RFC 9562, section 4): groups of 8, 4, 4, 4 and 12 digits.
std::string uuid_text(std::span<const std::byte, 16> bytes);

}  // namespace shared_tensor
