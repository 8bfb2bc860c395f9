#pragma once

#include <string>

namespace shared_tensor {

/// The default path of the local channel of a server on that TCP port: <port>.sock in a folder of this user. The folder
/// is shared_tensor in XDG_RUNTIME_DIR or in /run/user/<uid>, else /tmp/shared_tensor-<uid>.
std::string default_local_socket(int port);
/// For a server that listens on a Unix socket only: the path of that socket plus ".local".
std::string default_local_socket(const std::string& unix_socket);

/// Whether `path` is a folder that this user owns and no other user can write to.
bool is_own_folder(const std::string& path);

}  // namespace shared_tensor
