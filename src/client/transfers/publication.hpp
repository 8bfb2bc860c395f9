#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "client/call/core.hpp"
#include "tensor/files/tensor_file.hpp"
#include "tensor/files/tensor_set.hpp"

namespace shared_tensor::client {

/// Smaller sets are copied into memory that is used again, and the server copies them once more: that costs less than
/// new memory for each version.
inline constexpr std::uint64_t kMinImmutable = 1 << 20;

/// New versions of a name are uploaded from this size on, unless they lie in shared memory: immutable memory is new for
/// each version, but the server uses the memory of uploads again, and the kernel takes 2 to 10 times as long to provide
/// new memory as to copy into used memory.
inline constexpr std::uint64_t kMinUploaded = 8 << 20;

/// Tensors as they are sent to the server, in immutable memory if possible: then the server keeps this memory.
struct Publication {
    codec::TensorPointer tensor;  ///< null: a set
    tensor::TensorSet set{};
    tensor::Metadata metadata{};  ///< of the file
    std::uint64_t copied = 0;     ///< bytes that this process copied in memory
};

/// Nullopt unless all tensors lie in one segment of shared memory. They stay there, and the segment becomes immutable.
std::optional<Publication> publication_in_place(const Core& core, const codec::TensorPointer& tensor);
/// Moves from `tensors` if it succeeds.
std::optional<Publication> publication_in_place(const Core& core, tensor::TensorMap& tensors);

// Copy the tensors once. Throw std::bad_alloc, std::system_error, DeviceRejected; publication_of_file() also
// SafetensorsError.

Publication publication_by_copy(const Core& core, const codec::TensorPointer& tensor);
Publication publication_by_copy(const Core& core, const tensor::TensorMap& tensors);
Publication publication_of_file(const Core& core, const std::string& path);

std::uint64_t bytes_of(const tensor::TensorMap& tensors);

}  // namespace shared_tensor::client
