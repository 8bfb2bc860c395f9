#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <optional>

#include "http/message.hpp"
#include "util/guarded.hpp"
#include "util/unique_fd.hpp"

namespace shared_tensor::http {

/// Who connected over a Unix socket: uid and pid of the process that called connect(), from the kernel.
Peer unix_peer(int fd);

/// Address and port of a TCP peer; the uid is not looked up yet.
Peer tcp_peer(const sockaddr_storage& address);

bool is_loopback(const sockaddr_storage& address);

/// Some machines pace even loopback (congestion control bbr), so that big bodies take twice as long: choose reno for
/// this connection where the kernel allows it.
void unpace_loopback(int fd);

/// Finds the user that owns the other end of a loopback TCP connection, in the kernel's socket table (netlink
/// sock_diag, a few microseconds). Its netlink socket is open from the start, so it works for a process that has no
/// descriptor left. Thread-safe.
class PeerUsers {
public:
    PeerUsers();

    struct User {
        std::optional<std::uint32_t> uid;
        int error = 0;  ///< errno, where the kernel could not be asked just now
    };
    /// No uid when the peer is not on loopback, or has closed its end already: a socket without an owner is reported as
    /// uid 0, which must not pass for root.
    User of(int fd);

private:
    struct Socket {
        UniqueFd fd;
        std::uint32_t questions = 0;
    };
    Guarded<Socket> netlink_;
};

}  // namespace shared_tensor::http
