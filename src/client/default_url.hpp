#pragma once

#include <functional>
#include <string>

#include <shared_tensor/client_options.hpp>

namespace shared_tensor::client {

/// Reads one variable of the environment; nullptr when it is not set.
using Environment = std::function<const char*(const char* name)>;

/// SHARED_TENSOR_URL, else 127.0.0.1 with port 2537 plus RANK, else plus LOCAL_RANK. Empty variables count as unset.
/// Throws std::invalid_argument for a rank that is no number, or that leaves the range of ports.
std::string default_url(const Environment& environment);

/// Of this process.
std::string default_url();

/// With the environment's url where there is none. Throws std::invalid_argument for options that cannot be.
ClientOptions completed(ClientOptions options);

}  // namespace shared_tensor::client
