#pragma once

#include <optional>
#include <string>

#include "base/system/fork.hpp"
#include "base/system/unix_listener.hpp"
#include "net/message/message.hpp"

namespace shared_tensor::net {

/// A client that was accepted.
struct Accepted {
    ProcessFd fd;  ///< empty: no client was accepted, errno says why
    Peer peer;
    bool loopback = false;  ///< TCP from this host: the kernel can tell the client's uid
};

/// A listening socket, non-blocking.
class Listener {
public:
    /// `host` is an address or a name; port 0 lets the kernel choose. No SO_REUSEPORT: two servers on one port are an
    /// error. Throws std::system_error that names address and port.
    static Listener tcp(const std::string& host, int port);

    /// See UnixListener.
    static Listener unix_socket(const std::string& path);

    int fd() const { return unix_ ? unix_->fd() : tcp_.get(); }
    int port() const { return port_; }  ///< 0 for a Unix socket
    /// Does not block: EAGAIN if no client waits.
    Accepted accept() const;

private:
    Listener() = default;
    ProcessFd tcp_;
    int port_ = 0;
    std::optional<UnixListener> unix_;
};

}  // namespace shared_tensor::net
