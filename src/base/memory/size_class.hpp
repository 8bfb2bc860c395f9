#pragma once

#include <cstddef>

namespace shared_tensor {

/// Rounds a size up to the sizes that pools keep: powers of two from 4 KiB to 2 MiB, then steps of a quarter of the
/// lower power. So a tensor with its small header wastes at most a quarter. Throws std::bad_alloc beyond 2^62.
std::size_t size_class(std::size_t wanted);

}  // namespace shared_tensor
