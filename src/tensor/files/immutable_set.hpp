#pragma once

#include <functional>
#include <string>

#include "local/segments/immutable_memory.hpp"
#include "tensor/files/tensor_file.hpp"
#include "tensor/files/tensor_set.hpp"

namespace shared_tensor::tensor {

/// Seals memory that was written, and maps it.
using TakeImmutable = std::function<Block(local::ImmutableMemory&)>;

// Copies into new immutable memory, with one copy wherever the tensors are. Nothing may have 0 bytes in all. Throw
// DeviceRejected, std::bad_alloc, std::system_error, and what `take` throws.

TensorSet write_set(const TensorMap& tensors, const TakeImmutable& take);
codec::TensorPointer write_tensor(const codec::TensorPointer& tensor, const TakeImmutable& take);
/// Throws SafetensorsError if the file became shorter, or has bools other than 0 and 1.
SafetensorsContent write_file(SafetensorsSource source, const TakeImmutable& take);

}  // namespace shared_tensor::tensor
