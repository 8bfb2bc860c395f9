#pragma once

#include <cstddef>

#include "tensor/descriptor.hpp"

namespace shared_tensor::tensor {

/// Whether a tensor of dtype bool has elements other than the bytes 0 and 1: reading such a one is undefined behaviour.
/// Of other dtypes none has. `data` is the first element; `strides` empty when contiguous.
bool has_odd_bools(DType dtype, ShapeView shape, ShapeView strides, const std::byte* data);

/// Refuses such bytes: throws InvalidValue. `data` is the first element of a tensor as `descriptor` lays it out.
void check_bools(const Descriptor& descriptor, const std::byte* data);

}  // namespace shared_tensor::tensor
