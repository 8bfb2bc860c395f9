#pragma once

#include <bit>
#include <cstddef>
#include <new>

namespace shared_tensor {

/// Rounds a size up to the sizes that pools keep: powers of two from 4 KiB to 2 MiB, then steps of a quarter of the
/// lower power. So a tensor with its small header wastes at most a quarter. Throws std::bad_alloc beyond 2^62.
inline std::size_t size_class(std::size_t wanted) {
    constexpr std::size_t kSmallest = std::size_t{4} << 10;
    constexpr std::size_t kPowersUpTo = std::size_t{2} << 20;
    if (wanted <= kSmallest) return kSmallest;
    if (wanted > (std::size_t{1} << 62)) throw std::bad_alloc();
    const std::size_t power = std::bit_ceil(wanted);
    if (power <= kPowersUpTo) return power;
    const std::size_t step = power / 8;  // a quarter of the next lower power
    return (wanted + step - 1) / step * step;
}

}  // namespace shared_tensor
