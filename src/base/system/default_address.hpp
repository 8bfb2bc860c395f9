#pragma once

#include <functional>
#include <string>

namespace shared_tensor {

/// Reads one variable of the environment; nullptr when it is not set.
using Environment = std::function<const char*(const char* name)>;

/// The port of server and clients when none is given: 2537 plus RANK, else plus LOCAL_RANK (one server per GPU). Empty
/// variables count as unset. Throws std::invalid_argument if the rank is not a number, or if the port would be above
/// 65535.
int default_port(const Environment& environment);

/// Reads the environment of this process.
int default_port();

/// The default path of the local channel of a server on that TCP port: <port>.sock in a folder of this user. The folder
/// is shared_tensor in XDG_RUNTIME_DIR or in /run/user/<uid>, else /tmp/shared_tensor-<uid>.
std::string default_local_socket(int port);
/// For a server that listens on a Unix socket only: the path of that socket plus ".local".
std::string default_local_socket(const std::string& unix_socket);

}  // namespace shared_tensor
