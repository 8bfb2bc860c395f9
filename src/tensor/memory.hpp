#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "tensor/dtype.hpp"
#include "tensor/layout.hpp"

namespace at {
class Tensor;
}

namespace shared_tensor::tensor {

/// A contiguous tensor in host memory, its elements not yet set. Throws std::bad_alloc.
at::Tensor allocate(DType dtype, ShapeView shape);

/// A tensor whose elements lie at `data`, which `owner` keeps alive as long as the tensor or any view of it lives.
/// Never resized. `data` must be aligned to the item size; `strides` empty for contiguous.
at::Tensor view_of(const std::byte* data, std::shared_ptr<const void> owner, DType dtype, ShapeView shape,
                   ShapeView strides);

/// The elements of a contiguous tensor in host memory, to be filled.
std::span<std::byte> mutable_bytes(const at::Tensor& tensor);

/// A tensor whose elements are contiguous in host memory, and how many bytes had to be copied for that.
struct Dense {
    std::shared_ptr<const at::Tensor> tensor;
    std::span<const std::byte> bytes;
    std::uint64_t copied = 0;
};
/// `tensor` itself when it is so already. `dtype` is its own. Throws std::bad_alloc.
Dense dense(const at::Tensor& tensor, DType dtype);

}  // namespace shared_tensor::tensor
