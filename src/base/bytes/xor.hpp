#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace shared_tensor {

/// XORs `bytes` with `other`, as far as both go.
inline void xor_into(std::span<std::byte> bytes, std::span<const std::byte> other) {
    const std::size_t count = std::min(bytes.size(), other.size());
    std::size_t i = 0;
    for (; i + sizeof(std::uint64_t) <= count; i += sizeof(std::uint64_t)) {
        std::uint64_t one = 0, two = 0;
        std::memcpy(&one, bytes.data() + i, sizeof(one));
        std::memcpy(&two, other.data() + i, sizeof(two));
        one ^= two;
        std::memcpy(bytes.data() + i, &one, sizeof(one));
    }
    for (; i < count; ++i)
        bytes[i] ^= other[i];
}

}  // namespace shared_tensor
