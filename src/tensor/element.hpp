#pragma once

#include <cstddef>
#include <string>

#include "tensor/describe.hpp"
#include "tensor/dtype.hpp"

namespace shared_tensor::tensor {

/// One element as JSON: true and false, integers, numbers ("NaN", "Infinity", "-Infinity" where the type has them),
/// [re, im] for complex types. Numbers print in the shortest form that reads back the same.
struct ElementCodec {
    /// False when the value does not fit the type.
    bool (*read)(const Json& json, std::byte* out);
    Json (*print)(const std::byte* in);
    std::string (*expected)();
};

/// nullptr for float4_e2m1fn_x2, whose elements are pairs.
const ElementCodec* element_codec(DType dtype);

}  // namespace shared_tensor::tensor
