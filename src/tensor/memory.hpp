#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include <shared_tensor/tensor_ref.hpp>

#include "base/memory/memory_block.hpp"
#include "tensor/layout.hpp"

namespace shared_tensor::tensor {

/// Alignment in bytes of plain_block(), and of the members of a set in an allocation that this process makes.
inline constexpr std::uint64_t kMemberAlignment = 64;

/// Allocates ordinary memory. Throws std::bad_alloc.
MemoryBlock plain_block(std::uint64_t bytes);

/// Allocates a contiguous tensor in host memory; its elements are uninitialized. Throws std::bad_alloc.
TensorRef allocate(DType dtype, ShapeView shape);

/// Returns a tensor whose elements are at `data`. The tensor and its views keep `owner`, which must keep the memory.
/// `data` must be aligned to the item size. Empty `strides`: contiguous.
TensorRef view_of(const std::byte* data, std::shared_ptr<const void> owner, DType dtype, ShapeView shape,
                  ShapeView strides);

/// Whether elements of this dtype can be used at `data`. Item sizes are powers of two, so alignment to the item size is
/// enough for complex numbers too.
bool is_aligned(const std::byte* data, DType dtype);

/// Copies the elements of a tensor, wherever it is, to `out`, in C order, without gaps. Blocks for a tensor on a
/// device. Throws DeviceRejected, std::bad_alloc.
void copy_elements(const TensorRef& tensor, std::byte* out);

/// The bytes of a contiguous tensor in host memory, for writing.
std::span<std::byte> mutable_bytes(const TensorRef& tensor);

/// A contiguous tensor in host memory, and the number of bytes that were copied to get it.
struct Dense {
    TensorRef tensor;
    std::span<const std::byte> bytes;
    std::uint64_t copied = 0;
};
/// Returns `tensor` itself if it is contiguous in host memory, else a copy. Throws what copy_elements() throws.
Dense dense(const TensorRef& tensor);

/// Returns whether a tensor of dtype bool has elements other than the bytes 0 and 1: to read another byte as a C++ bool
/// is undefined behaviour. Returns false for other dtypes. `data` is the first element. Empty `strides`: contiguous.
bool has_odd_bools(DType dtype, ShapeView shape, ShapeView strides, const std::byte* data);

}  // namespace shared_tensor::tensor
