#pragma once

#include <string>
#include <utility>

#include <shared_tensor/server.hpp>

namespace shared_tensor::server {

/// Where the local channel of a server listens that is bound to `port` (0: to a Unix socket only): the path of the
/// options, or <runtime directory>/shared_tensor/<port>.sock, beside the Unix socket where there is no port. The folder
/// is made with mode 0700. Empty for "none". Throws std::runtime_error for a folder that others can write to.
std::string local_socket_path(const ServerOptions& options, int port);

/// A second name of the local channel, as long as it lives: clients that know the server by its Unix socket look for
/// the channel beside that. What stands there and is no link of ours is left alone.
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
