#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "protocol/json_rpc/error.hpp"
#include "protocol/json_rpc/message.hpp"

namespace shared_tensor::runtime {

/// The earlier items of a batch whose results one item uses as arguments.
struct BatchInputs {
    std::vector<std::size_t> items{};        ///< their indices in the batch, each once
    std::optional<json_rpc::Error> error{};  ///< set if a reference is invalid
};

/// Returns the inputs of each request. Null in `requests` stands for an item that is not a valid request.
std::vector<BatchInputs> find_inputs(std::span<const json_rpc::Request* const> requests);

}  // namespace shared_tensor::runtime
