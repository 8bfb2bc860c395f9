#pragma once

#include <string>
#include <string_view>

#include "protocol/json_rpc/error.hpp"

namespace shared_tensor::server {

/// Thrown inside an endpoint, which then answers with this HTTP status and this error.
struct Rejected {
    int status;
    json_rpc::Error error;
};

[[noreturn]] inline void reject(std::string_view parameter, std::string_view expected, std::string_view got) {
    throw Rejected{400, json_rpc::invalid_params(parameter, expected, got)};
}

/// Rejects an unknown parameter in the query of a URL. `known` lists the parameters that exist.
[[noreturn]] inline void reject_parameter(std::string_view name, std::string_view known) {
    reject(name, std::string("one of the parameters that there are: ").append(known), "an unknown parameter");
}

}  // namespace shared_tensor::server
