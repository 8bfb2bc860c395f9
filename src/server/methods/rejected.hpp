#pragma once

#include <exception>
#include <string>
#include <string_view>
#include <utility>

#include "protocol/json_rpc/error.hpp"

namespace shared_tensor::server {

/// Thrown inside a method or an endpoint, which then answers with this error. `status` is the HTTP status of the
/// answer, except for answers to JSON-RPC requests: set_status() chooses theirs.
class Rejected : public std::exception {
public:
    explicit Rejected(json_rpc::Error why, int http_status = 400) : error(std::move(why)), status(http_status) {}

    json_rpc::Error error;
    int status;
};

[[noreturn]] inline void reject(std::string_view parameter, std::string_view expected, std::string_view got) {
    throw Rejected(json_rpc::invalid_params(parameter, expected, got));
}

/// Rejects an unknown parameter in the query of a URL. `known` lists the parameters that exist.
[[noreturn]] inline void reject_parameter(std::string_view name, std::string_view known) {
    reject(name, std::string("one of the parameters that there are: ").append(known), "an unknown parameter");
}

}  // namespace shared_tensor::server
