#pragma once

#include <string>

#include "protocol/codec/value.hpp"

namespace shared_tensor::tensor {

using codec::Json;

/// Describes a JSON value for error messages, in a short text: "number -1", "string \"abc\"", "array of 3".
std::string described(const Json& json);

}  // namespace shared_tensor::tensor
