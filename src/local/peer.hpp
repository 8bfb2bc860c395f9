#pragma once

#include <sys/types.h>

#include "util/unique_fd.hpp"

namespace shared_tensor::local {

/// Who made the connection, from the kernel: never from what it says. Ids as this process sees them; pid 0: the peer
/// lives in a PID namespace that we do not see into.
struct Peer {
    pid_t pid = 0;
    uid_t uid = 0;
    gid_t gid = 0;
};
/// SO_PEERCRED. Throws std::system_error.
Peer peer_of(int socket);

/// Becomes readable when that process ends, whoever else holds its end of the socket. Owns nothing where the kernel
/// gives none: then the end of the socket is all there is.
UniqueFd process_of(int socket, const Peer& peer);

}  // namespace shared_tensor::local
