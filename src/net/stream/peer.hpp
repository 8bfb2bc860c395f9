#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <optional>

#include "base/concurrency/guarded.hpp"
#include "base/system/unique_fd.hpp"
#include "net/message/message.hpp"

namespace shared_tensor::net {

/// The peer of a Unix socket: uid and pid of the process that called connect(), from the kernel.
Peer unix_peer(int fd);

/// Address and port of a TCP peer, without its uid.
Peer tcp_peer(const sockaddr_storage& address);

bool is_loopback(const sockaddr_storage& address);

/// Chooses the congestion control reno for this connection, if the kernel allows it. Some machines use bbr, which paces
/// even loopback, so that large bodies take twice as long.
void unpace_loopback(int fd);

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
