// Where the local channel of a server listens.

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <stdexcept>
#include <string_view>
#include <system_error>

#include "base/log/log.hpp"
#include "base/system/files.hpp"
#include "base/system/host.hpp"
#include "base/system/unix_listener.hpp"
#include "server/services.hpp"

namespace shared_tensor::server {

namespace {

/// The path where the local channel listens; empty if the options say "none". Without a path in the options it is
/// <runtime directory>/shared_tensor/<port>.sock, or for port 0 the path of the Unix socket with a suffix. Makes the
/// folder shared_tensor with mode 0700. Throws std::runtime_error if another user owns the folder or can write to it,
/// and std::system_error if it cannot be made.
std::string socket_path(const ServerOptions& options, int port) {
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

/// Makes the symbolic link `alias` to the local channel's socket, for clients that know only the server's Unix socket:
/// they look for the channel beside it. Replaces an old link, but no other file. False if there is no link to remove.
bool make_alias(const std::string& alias, const std::string& path) {
    if (alias == path) return false;
    struct stat found {};
    if (::lstat(alias.c_str(), &found) == 0 && S_ISLNK(found.st_mode)) ::unlink(alias.c_str());  // its server ended
    if (::symlink(path.c_str(), alias.c_str()) == 0) return true;
    log::warn("clients of the Unix socket share no memory: cannot make ", alias, ": ",
              std::generic_category().message(errno));
    return false;
}

/// Removes the link, unless another server has replaced it.
void remove_alias(const std::string& alias, const std::string& path) {
    std::array<char, 256> target{};
    const ssize_t size = ::readlink(alias.c_str(), target.data(), target.size());
    if (size > 0 && std::string_view(target.data(), static_cast<std::size_t>(size)) == path) ::unlink(alias.c_str());
}

}  // namespace

void LocalClients::start(int port) {
    const ServerOptions& options = all_.options;
    try {
        const std::string path = socket_path(options, port);
        if (path.empty()) {
            reason_.with([](std::string& reason) {
                reason = "this server was started without a local channel (--local-socket none)";
            });
            return;
        }
        listen(path);
        const std::string alias = options.unix_socket.empty() ? "" : default_local_socket(options.unix_socket);
        if (!alias.empty() && make_alias(alias, path)) alias_ = alias;
    } catch (const std::exception& error) {
        if (options.local_socket != "auto") throw;
        log::warn("no memory is shared with other processes: ", error.what());
        reason_.with(
            [](std::string& reason) { reason = "the server could not open its local channel; its log says why"; });
    }
}

void LocalClients::listen(const std::string& path) {
    handle_memory_faults();
    const std::size_t most = all_.options.shared_memory.max_channels;
    local::ChannelServerOptions options{path, most};
    options.max_new = std::max<std::size_t>(1, most / 4);
    options.settle_within = all_.options.http.header_timeout;
    auto server = std::make_shared<local::ChannelServer>(std::move(options), *this);
    network_->server.with([&](auto& held) { held = server; });
    server->start();
}

void LocalClients::stop() {
    if (!alias_.empty()) remove_alias(std::exchange(alias_, {}), path());
    std::shared_ptr<local::ChannelServer> server;
    network_->server.with([&](auto& held) { held.swap(server); });
    if (server != nullptr) server->stop();
}

std::string LocalClients::path() const {
    const auto server = network_->listening();
    return server != nullptr ? server->path() : std::string();
}

}  // namespace shared_tensor::server
