#pragma once

#include <string_view>

#include "json_rpc/error.hpp"

namespace shared_tensor::server {

/// Thrown inside an endpoint: its answer is this error, with that status of HTTP.
struct Refused {
    int status;
    json_rpc::Error error;
};

[[noreturn]] inline void refuse(std::string_view parameter, std::string_view expected, std::string_view got) {
    throw Refused{400, json_rpc::invalid_params(parameter, expected, got)};
}

}  // namespace shared_tensor::server
