#pragma once

#include <cstddef>
#include <string>

#include "protocol/codec/value.hpp"
#include "tensor/layout.hpp"

namespace shared_tensor::tensor {

using codec::Json;

/// Reads and prints one element as JSON: true or false, an integer, a number ("NaN", "Infinity", "-Infinity" where the
/// type has them), [re, im] for complex types. A number prints in the shortest form that reads back as the same value.
struct ElementCodec {
    /// Writes the element to `out`. Returns false if the JSON value does not fit the type.
    bool (*read)(const Json& json, std::byte* out);
    Json (*print)(const std::byte* in);
    std::string (*expected)();
};

/// Returns the codec of a dtype; nullptr for float4_e2m1fn_x2, which has two values in one byte.
const ElementCodec* element_codec(DType dtype);

/// Infers the shape of nested lists, for a descriptor without a shape. With `complex`, a pair [re, im] is one element.
/// Only the first list of each level is inspected: ragged lists are rejected later, when they are read.
/// Throws InvalidValue if the lists are nested more than kMaxRank deep.
Shape shape_of_data(const Json& data, bool complex);

/// Infers the dtype of nested lists: bool if all elements are true or false, int64 if all are integers, else float32.
/// Without elements: float32. Booleans beside numbers fit no dtype: they are rejected later, when they are read.
DType dtype_of_data(const Json& data, std::size_t rank);

}  // namespace shared_tensor::tensor
