#pragma once

#include <cstddef>

#include "tensor/descriptor.hpp"

namespace shared_tensor::tensor {

/// Returns whether a tensor of dtype bool has elements other than the bytes 0 and 1: to read another byte as a C++ bool
/// is undefined behaviour. Returns false for other dtypes. `data` is the first element. Empty `strides`: contiguous.
bool has_odd_bools(DType dtype, ShapeView shape, ShapeView strides, const std::byte* data);

/// Throws InvalidValue if has_odd_bools(). `data` is the first element of a tensor with the layout of `descriptor`.
void check_bools(const Descriptor& descriptor, const std::byte* data);

}  // namespace shared_tensor::tensor
