#pragma once

#include "tensor/describe.hpp"
#include "tensor/dtype.hpp"
#include "tensor/layout.hpp"

namespace shared_tensor::tensor {

/// Infers the shape of nested lists, for a descriptor without a shape. With `complex`, a pair [re, im] is one element.
/// Only the first list of each level is inspected: ragged lists are rejected later, when they are read.
/// Throws InvalidValue if the lists are nested more than kMaxRank deep.
Shape shape_of_data(const Json& data, bool complex);

/// Infers the dtype of nested lists: bool if all elements are true or false, int64 if all are integers, else float32.
/// Without elements: float32. Booleans beside numbers fit no dtype: they are rejected later, when they are read.
DType dtype_of_data(const Json& data, std::size_t rank);

/// Whether a list can be one complex number: [re, im].
bool is_complex_pair(const Json& json);

}  // namespace shared_tensor::tensor
