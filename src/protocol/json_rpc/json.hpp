#pragma once

#include <nlohmann/json.hpp>

namespace shared_tensor::json_rpc {

/// Any JSON value. Write `Json(x)`, not `Json{x}`: braces make an array with one element.
using Json = nlohmann::json;

}  // namespace shared_tensor::json_rpc
