#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include <shared_tensor/tensor_ref.hpp>

#include "base/memory/memory_block.hpp"
#include "tensor/dtype.hpp"
#include "tensor/layout.hpp"

namespace shared_tensor::tensor {

/// Allocates ordinary memory, aligned to 64 bytes. Throws std::bad_alloc.
MemoryBlock plain_block(std::uint64_t bytes);

/// Allocates a contiguous tensor in host memory; its elements are uninitialized. Throws std::bad_alloc.
TensorRef allocate(DType dtype, ShapeView shape);

/// Returns a tensor whose elements are at `data`. The tensor and its views keep `owner`, which must keep the memory.
/// `data` must be aligned to the item size. Empty `strides`: contiguous.
TensorRef view_of(const std::byte* data, std::shared_ptr<const void> owner, DType dtype, ShapeView shape,
                  ShapeView strides);

/// Copies the elements of a tensor in host memory to `out`, in C order, without gaps.
void gather(const TensorRef& tensor, std::byte* out);

/// The bytes of a contiguous tensor in host memory, for writing.
std::span<std::byte> mutable_bytes(const TensorRef& tensor);

/// A contiguous tensor in host memory, and the number of bytes that were copied to get it.
struct Dense {
    TensorRef tensor;
    std::span<const std::byte> bytes;
    std::uint64_t copied = 0;
};
/// Returns `tensor` itself if it is contiguous in host memory, else a copy. Throws std::bad_alloc.
Dense dense(const TensorRef& tensor);

}  // namespace shared_tensor::tensor
