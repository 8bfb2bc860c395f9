#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include <shared_tensor/function.hpp>

#include "protocol/codec/json_source.hpp"
#include "protocol/json_rpc/message.hpp"

namespace shared_tensor::runtime {

/// One node per parameter; null if the caller gave no value.
using ArgumentNodes = std::vector<ValueSource::Node>;

/// Matches `params` (array, object or null) with the parameters of the function. Too many, unknown and missing
/// arguments are error -32602 with parameter, expected and got. FunctionRecord::bind checks the types later.
std::variant<ArgumentNodes, json_rpc::Error> match_arguments(const FunctionRecord& function, const codec::Json& params);

/// A text that is equal only for equal arguments. It lists the arguments by position. A tensor is given by dtype,
/// shape, and its bytes or their digest.
struct ArgumentsKey {
    std::string text;
    bool has_digests = false;  ///< true: usable to compare calls, not as a key of a kept result
    bool has_objects = false;  ///< true: the objects may change later
};
/// compute: of all tensors; stop: at the first tensor that is too large to be in the text
enum class Digests { compute, stop };
/// Call it after bind(), which imports the tensors.
ArgumentsKey arguments_key(const ArgumentNodes& nodes, const codec::JsonSource& source, Digests digests);

/// The earlier items of a batch whose results one item uses as arguments.
struct BatchInputs {
    std::vector<std::size_t> items{};        ///< their indices in the batch, each once
    std::optional<json_rpc::Error> error{};  ///< set if a reference is invalid
};

/// Returns the inputs of each request. Null in `requests` stands for an item that is not a valid request.
std::vector<BatchInputs> find_inputs(std::span<const json_rpc::Request* const> requests);

}  // namespace shared_tensor::runtime
