#pragma once

#include <cstddef>
#include <string>

#include "tensor/describe.hpp"
#include "tensor/dtype.hpp"

namespace shared_tensor::tensor {

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

}  // namespace shared_tensor::tensor
