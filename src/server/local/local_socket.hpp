#pragma once

#include <string>
#include <utility>

#include <shared_tensor/server.hpp>

namespace shared_tensor::server {

/// The path where the local channel of a server listens; empty if the options say "none". `port` is the server's TCP
/// port (0: the server listens on a Unix socket only). Without a path in the options, the path is <runtime
/// directory>/shared_tensor/<port>.sock, or for port 0 the path of the Unix socket with a suffix. Makes the folder
/// shared_tensor with mode 0700. Throws std::runtime_error if another user owns the folder or can write to it, and
/// std::system_error if it cannot be made.
std::string local_socket_path(const ServerOptions& options, int port);

/// A symbolic link to the local channel's socket. Clients that know only the server's Unix socket look for the channel
/// beside that socket. The constructor replaces an old link, but no other file; the destructor removes its own link.
class LocalSocketAlias {
public:
    LocalSocketAlias() = default;
    LocalSocketAlias(std::string alias, std::string path);
    ~LocalSocketAlias();
    LocalSocketAlias(LocalSocketAlias&& other) noexcept
        : alias_(std::exchange(other.alias_, {})), path_(std::move(other.path_)) {}
    LocalSocketAlias& operator=(LocalSocketAlias&& other) noexcept {
        std::swap(alias_, other.alias_);
        std::swap(path_, other.path_);
        return *this;
    }

private:
    bool is_ours() const;

    std::string alias_, path_;
};

}  // namespace shared_tensor::server
