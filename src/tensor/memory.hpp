#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include <shared_tensor/tensor_ref.hpp>

#include "tensor/dtype.hpp"
#include "tensor/layout.hpp"
#include "util/memory_block.hpp"

namespace shared_tensor::tensor {

/// Ordinary memory.
MemoryBlock plain_block(std::uint64_t bytes);

/// A contiguous tensor in host memory, its elements not yet set. Throws std::bad_alloc.
TensorRef allocate(DType dtype, ShapeView shape);

/// A tensor whose elements lie at `data`, which `owner` keeps alive as long as the tensor or any view of it lives.
/// `data` must be aligned to the item size; `strides` empty for contiguous.
TensorRef view_of(const std::byte* data, std::shared_ptr<const void> owner, DType dtype, ShapeView shape,
                  ShapeView strides);

/// Copies the elements of a tensor in host memory in order, without gaps.
void gather(const TensorRef& tensor, std::byte* out);

/// The elements of a contiguous tensor in host memory, to be filled.
std::span<std::byte> mutable_bytes(const TensorRef& tensor);

/// A tensor whose elements are contiguous in host memory, and how many bytes had to be copied for that.
struct Dense {
    TensorRef tensor;
    std::span<const std::byte> bytes;
    std::uint64_t copied = 0;
};
/// `tensor` itself when it is so already. Throws std::bad_alloc.
Dense dense(const TensorRef& tensor);

}  // namespace shared_tensor::tensor
