#pragma once

#include <sys/types.h>

#include "base/system/unique_fd.hpp"

namespace shared_tensor::local {

/// The process at the other end of a socket, as identified by the kernel. Ids are in this process's namespaces; pid 0:
/// the peer is in a PID namespace that is not visible here.
struct Peer {
    pid_t pid = 0;
    uid_t uid = 0;
    gid_t gid = 0;
};
/// Reads SO_PEERCRED. Throws std::system_error.
Peer peer_of(int socket);

/// Returns a descriptor that becomes readable when the peer's process ends, even if another process holds the peer's
/// end of the socket. Empty if the kernel provides none: then only the end of the socket shows the end of the process.
UniqueFd process_of(int socket, const Peer& peer);

}  // namespace shared_tensor::local
