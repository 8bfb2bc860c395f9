#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <optional>
#include <string>

#include "base/concurrency/guarded.hpp"
#include "base/system/fork.hpp"
#include "base/system/unique_fd.hpp"
#include "base/system/unix_listener.hpp"
#include "net/message/message.hpp"

namespace shared_tensor::net {

/// A client that was accepted.
struct Accepted {
    ProcessFd fd;  ///< empty: no client was accepted, errno says why
    Peer peer;
    bool loopback = false;  ///< TCP from this host: the kernel can tell the client's uid
};

/// Where a listening socket listens: `host` and `port`, or `unix_socket`.
struct ListeningAddress {
    std::string host{};  ///< an address
    int port = 0;
    std::string unix_socket{};  ///< a path

    /// Of a stream socket that another process opened. Throws std::invalid_argument with what is wrong with it.
    static ListeningAddress of(int fd);
};

/// A listening socket, non-blocking.
class Listener {
public:
    /// `host` is an address or a name; port 0 lets the kernel choose. No SO_REUSEPORT: two servers on one port are an
    /// error. Throws std::system_error that names address and port.
    static Listener tcp(const std::string& host, int port);

    /// See UnixListener.
    static Listener unix_socket(const std::string& path);

    /// A socket that another process opened, for TCP or a Unix socket. Owns the descriptor, but not the socket's file.
    /// Throws like ListeningAddress::of().
    static Listener inherited(int fd);

    int fd() const { return unix_ ? unix_->fd() : fd_.get(); }
    int port() const { return port_; }  ///< 0 for a Unix socket
    /// Does not block: EAGAIN if no client waits.
    Accepted accept() const;

private:
    Listener() = default;
    ProcessFd fd_;  // empty if unix_ owns the socket
    int port_ = 0;
    bool is_unix_ = false;
    std::optional<UnixListener> unix_;
};

/// Finds the user that owns the other end of a loopback TCP connection, in the kernel's socket table (netlink
/// sock_diag, a few microseconds). Its netlink socket is open from the start, so it works for a process that has no
/// descriptor left. Thread-safe.
class PeerUsers {
public:
    PeerUsers();

    struct User {
        std::optional<std::uint32_t> uid;
        int error = 0;  ///< errno, if the kernel could not be asked just now
    };
    /// No uid if the peer is not on loopback, or has closed its end: the kernel reports a socket without an owner as
    /// uid 0, which must not count as root.
    User of(int fd);

private:
    struct Socket {
        UniqueFd fd;
        std::uint32_t questions = 0;
    };
    Guarded<Socket> netlink_;
};

}  // namespace shared_tensor::net
