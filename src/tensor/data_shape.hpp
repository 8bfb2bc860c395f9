#pragma once

#include "tensor/describe.hpp"
#include "tensor/dtype.hpp"
#include "tensor/layout.hpp"

namespace shared_tensor::tensor {

/// What nested lists say about themselves where a descriptor leaves it out. Ragged lists are found when they are read.
/// Throws InvalidValue when they are nested deeper than a tensor can be.
Shape shape_of_data(const Json& data, bool complex);

/// bool when all elements are true or false, int64 when all are integers, else float32; float32 for no elements.
DType dtype_of_data(const Json& data, std::size_t rank);

/// Whether a list stands for one complex number: [re, im].
bool is_complex_pair(const Json& json);

}  // namespace shared_tensor::tensor
