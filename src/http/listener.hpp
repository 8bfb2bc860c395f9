#pragma once

#include <sys/types.h>

#include <string>

#include "util/unique_fd.hpp"

namespace shared_tensor::http {

/// A listening socket, non-blocking. A Unix socket's file is removed with it, unless somebody else replaced it.
class Listener {
public:
    /// `host` is an address or a name; port 0 lets the kernel choose. No SO_REUSEPORT: two servers on one port are an
    /// error. Throws std::system_error that names address and port.
    static Listener tcp(const std::string& host, int port);

    /// Creates the socket file with mode 0600. The file of a server that is gone is replaced; one that somebody
    /// listens on, or that is no socket, is an error. Throws std::system_error that names the path.
    static Listener unix_socket(const std::string& path);

    Listener(Listener&&) noexcept = default;
    Listener& operator=(Listener&&) = delete;
    ~Listener();

    int fd() const { return fd_.get(); }
    int port() const { return port_; }  ///< 0 for a Unix socket
    bool is_unix() const { return !path_.empty(); }

private:
    Listener() = default;
    UniqueFd fd_;
    int port_ = 0;
    std::string path_;
    dev_t device_ = 0;  // of the socket file that we made
    ino_t inode_ = 0;
};

}  // namespace shared_tensor::http
