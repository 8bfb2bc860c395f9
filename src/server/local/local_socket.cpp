#include "server/local/local_socket.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <stdexcept>
#include <string_view>
#include <system_error>

#include "base/log/log.hpp"
#include "base/system/files.hpp"
#include "base/system/host.hpp"
#include "base/system/unix_listener.hpp"

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
        throw std::runtime_error(
            folder + " must be owned and writable by this user only: name another path with --local-socket");
    remove_dead_sockets(folder);
    return path;
}

LocalSocketAlias::LocalSocketAlias(std::string alias, std::string path)
    : alias_(std::move(alias)), path_(std::move(path)) {
    if (alias_ == path_) alias_.clear();
    if (alias_.empty()) return;
    struct stat found {};
    if (::lstat(alias_.c_str(), &found) == 0 && S_ISLNK(found.st_mode)) ::unlink(alias_.c_str());  // its server ended
    if (::symlink(path_.c_str(), alias_.c_str()) == 0) return;
    log::warn("clients of the Unix socket share no memory: cannot make ", alias_, ": ",
              std::generic_category().message(errno));
    alias_.clear();
}

LocalSocketAlias::~LocalSocketAlias() {
    if (is_ours()) ::unlink(alias_.c_str());
}

bool LocalSocketAlias::is_ours() const {
    if (alias_.empty()) return false;
    std::array<char, 256> target{};
    const ssize_t size = ::readlink(alias_.c_str(), target.data(), target.size());
    return size > 0 && std::string_view(target.data(), static_cast<std::size_t>(size)) == path_;
}

}  // namespace shared_tensor::server
