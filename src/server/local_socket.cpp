#include "server/local_socket.hpp"

#include <sys/stat.h>

#include <cerrno>
#include <stdexcept>
#include <system_error>

#include "util/default_local_socket.hpp"
#include "util/unix_listener.hpp"

namespace shared_tensor::server {

std::string local_socket_path(const ServerOptions& options, int port) {
    if (options.local_socket == "none") return {};
    if (options.local_socket != "auto") return options.local_socket;
    if (port == 0) return default_local_socket(options.unix_socket);
    const std::string path = default_local_socket(port);
    const std::string folder = path.substr(0, path.rfind('/'));
    if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST)
        throw std::system_error(errno, std::generic_category(), "cannot make " + folder);
    if (!is_own_folder(folder))
        throw std::runtime_error(folder + " is not this user's alone: name another path with --local-socket");
    remove_dead_sockets(folder);
    return path;
}

}  // namespace shared_tensor::server
