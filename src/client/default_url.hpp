#pragma once

#include <string>

#include <shared_tensor/client_options.hpp>

#include "util/default_port.hpp"

namespace shared_tensor::client {

/// SHARED_TENSOR_URL, else default_port() of this host. An empty variable counts as unset. Throws
/// std::invalid_argument for a rank that is no number.
std::string default_url(const Environment& environment);

/// Of this process.
std::string default_url();

/// A url that a caller gives. Throws std::invalid_argument for an empty one: the server of the environment is not
/// meant.
std::string checked_url(std::string url);

/// With the environment's url where there is none. Throws std::invalid_argument for options that cannot be.
ClientOptions completed(ClientOptions options);

}  // namespace shared_tensor::client
