#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <optional>

#include "http/message.hpp"

namespace shared_tensor::http {

/// Who connected over a Unix socket: uid and pid of the process that called connect(), from the kernel.
Peer unix_peer(int fd);

/// Address and port of a TCP peer; the uid is not looked up yet.
Peer tcp_peer(const sockaddr_storage& address);

bool is_loopback(const sockaddr_storage& address);

/// Some machines pace even loopback (congestion control bbr), so that big bodies take twice as long: choose reno for
/// this connection where the kernel allows it.
void unpace_loopback(int fd);

/// The user that owns the other end of the loopback TCP connection `fd`, from the kernel's socket table (netlink
/// sock_diag, a few microseconds). None when the peer is not on loopback, when the kernel does not tell, or when the
/// peer has closed its end already: a socket without an owner is reported as uid 0, which must not pass for root.
std::optional<std::uint32_t> loopback_peer_uid(int fd);

}  // namespace shared_tensor::http
