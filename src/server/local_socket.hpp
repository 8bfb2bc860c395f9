#pragma once

#include <string>

#include <shared_tensor/server.hpp>

namespace shared_tensor::server {

/// Where the local channel of a server listens that is bound to `port` (0: to a Unix socket only): the path of the
/// options, or <runtime directory>/shared_tensor/<port>.sock, beside the Unix socket where there is no port. The folder
/// is made with mode 0700. Empty for "none". Throws std::runtime_error for a folder that others can write to.
std::string local_socket_path(const ServerOptions& options, int port);

}  // namespace shared_tensor::server
