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

/// A text that is equal for equal arguments only: position after position, tensors by dtype, shape and bytes, those
/// that are too big for it by a digest of their bytes. Call it after bind, when the tensors are imported.
struct ArgumentsKey {
    std::string text;
    bool has_digests = false;  ///< true: good to compare with, not to keep a result under
    bool has_objects = false;  ///< true: what they are now they need not be later
};
enum class Digests { compute, stop };  ///< stop: at the first tensor that needs one; has_digests says so
ArgumentsKey arguments_key(const ArgumentNodes& nodes, const codec::JsonSource& source, Digests digests);

}  // namespace shared_tensor::service
