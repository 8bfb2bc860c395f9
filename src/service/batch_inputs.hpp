#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "json_rpc/error.hpp"
#include "json_rpc/message.hpp"

namespace shared_tensor::service {

/// Which earlier items of its batch an item names as its arguments.
struct BatchInputs {
    std::vector<std::size_t> items{};        ///< their places in the batch, each once
    std::optional<json_rpc::Error> error{};  ///< one of the names is none
};

/// Of each of the requests; null stands for an item that was no request.
std::vector<BatchInputs> find_inputs(std::span<const json_rpc::Request* const> requests);

}  // namespace shared_tensor::service
