#pragma once

#include <cstdint>
#include <string>

#include "client/call/core.hpp"
#include "tensor/files/tensor_file.hpp"
#include "tensor/files/tensor_set.hpp"

namespace shared_tensor::client {

/// Smaller sets are copied into memory that is used again, and the server copies them once more: that costs less than
/// new memory for each version.
inline constexpr std::uint64_t kMinImmutable = 1 << 20;

/// Tensors as they are sent to the server, in immutable memory if possible: then the server keeps this memory.
struct Publication {
    codec::TensorPointer tensor;  ///< null: a set
    tensor::TensorSet set{};
    tensor::Metadata metadata{};  ///< of the file
    std::uint64_t copied = 0;     ///< bytes that this process copied in memory
};

// Tensors that lie in one segment of shared memory stay there, and the segment becomes immutable. Other tensors are
// copied once. Throw std::bad_alloc, std::system_error, DeviceRejected; publication_of_file() also SafetensorsError.

Publication publication_of(const Core& core, const codec::TensorPointer& tensor);
Publication publication_of(const Core& core, tensor::TensorMap tensors);
Publication publication_of_file(const Core& core, const std::string& path);

}  // namespace shared_tensor::client
