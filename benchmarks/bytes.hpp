#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <vector>

namespace bench {

/// Sizes of the tensors that are sent.
inline constexpr std::size_t kTensorBytes[] = {std::size_t{4} << 10, std::size_t{1} << 20, std::size_t{64} << 20};
/// Size of the additional tensor of --large.
inline constexpr std::size_t kLargeTensorBytes = std::size_t{1} << 30;

inline void fill(std::uint8_t* data, std::size_t size) {
    for (std::size_t i = 0; i < size; ++i)
        data[i] = static_cast<std::uint8_t>((i * 2654435761U) >> 13);
}

inline std::vector<std::uint8_t> filled(std::size_t size) {
    std::vector<std::uint8_t> bytes(size);
    fill(bytes.data(), size);
    return bytes;
}

/// A checksum of the size and four bytes: checks that a tensor is complete, at almost no cost.
inline std::int64_t fingerprint(const void* data, std::size_t size) {
    if (size == 0) return 0;
    const auto* bytes = static_cast<const std::uint8_t*>(data);
    auto sum = static_cast<std::int64_t>(size);
    for (const std::size_t place : {std::size_t{0}, size / 3, size / 2, size - 1})
        sum = sum * 31 + bytes[place];
    return sum;
}

inline void require(bool holds, const char* what) {
    if (!holds) throw std::runtime_error(what);
}

}  // namespace bench
