#pragma once

#include <string>

namespace shared_tensor {

/// Where the local channel of a server on that TCP port listens, unless told otherwise: <port>.sock in a folder of this
/// user's alone: shared_tensor in XDG_RUNTIME_DIR or /run/user/<uid>, else /tmp/shared_tensor-<uid>.
std::string default_local_socket(int port);
/// Of a server that listens on a Unix socket only: beside it.
std::string default_local_socket(const std::string& unix_socket);

/// Whether a folder belongs to this user and nobody else can write to it.
bool is_own_folder(const std::string& path);

}  // namespace shared_tensor
