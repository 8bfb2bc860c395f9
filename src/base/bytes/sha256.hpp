#pragma once

#include <array>
#include <cstddef>
#include <span>

namespace shared_tensor {

using Sha256 = std::array<std::byte, 32>;

/// SHA-256 by OpenSSL. Throws std::bad_alloc.
Sha256 sha256_of(std::span<const std::byte> bytes);

}  // namespace shared_tensor
