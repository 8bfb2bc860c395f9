#pragma once

#include <string>
#include <variant>
#include <vector>

#include <shared_tensor/function.hpp>

#include "codec/json_source.hpp"
#include "json_rpc/error.hpp"

namespace shared_tensor::service {

/// One node a parameter, null where the caller gave nothing.
using ArgumentNodes = std::vector<ValueSource::Node>;

/// Lays `params` (array, object or null) beside the function's parameters: too many, unknown and missing ones are
/// -32602 with parameter, expected and got. Types are checked later, by SharedFunction::bind.
std::variant<ArgumentNodes, json_rpc::Error> match_arguments(const SharedFunction& function, const codec::Json& params);

/// A text that is equal for equal arguments only: position after position, tensors by dtype, shape and bytes. Empty
/// when a tensor is too big for it. Call it after bind, when the tensors are imported.
std::string arguments_key(const ArgumentNodes& nodes, const codec::JsonSource& source);

}  // namespace shared_tensor::service
