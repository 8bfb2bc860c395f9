#pragma once

#include <string>

#include <shared_tensor/client_options.hpp>

#include "base/system/default_port.hpp"

namespace shared_tensor::client {

/// Returns SHARED_TENSOR_URL, or else the url of default_port() on this host. An empty variable counts as unset. Throws
/// as default_port() does.
std::string default_url(const Environment& environment);

/// Reads the environment of this process.
std::string default_url();

/// Returns `url`, which a caller gave. Throws std::invalid_argument if it is empty: an empty url does not stand for the
/// server of the environment.
std::string checked_url(std::string url);

/// Adds the environment's url, token and certificate authorities if `options` has no url. Throws std::invalid_argument
/// for invalid options.
ClientOptions completed(ClientOptions options);

}  // namespace shared_tensor::client
