#pragma once

#include <cstddef>

namespace shared_tensor {

/// What a pool keeps memory in: powers of two from 4 KiB, above 2 MiB steps of a quarter of the power below, so that a
/// tensor and its small header waste a quarter at most. Throws std::bad_alloc beyond 2^62.
std::size_t size_class(std::size_t wanted);

}  // namespace shared_tensor
