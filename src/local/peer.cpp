#include "local/peer.hpp"

#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "util/check.hpp"

namespace shared_tensor::local {

namespace {

constexpr int kPeerPidfd = 77;  // SO_PEERPIDFD of Linux 6.5: younger than the headers of many machines

}  // namespace

Peer peer_of(int socket) {
    ucred credentials{};
    socklen_t size = sizeof credentials;
    SHARED_TENSOR_CHECK_ERRNO(::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &size), "SO_PEERCRED");
    return {credentials.pid, credentials.uid, credentials.gid};
}

UniqueFd process_of(int socket, const Peer& peer) {
    int fd = -1;
    socklen_t size = sizeof fd;
    if (::getsockopt(socket, SOL_SOCKET, kPeerPidfd, &fd, &size) == 0) return UniqueFd(fd);
    if (peer.pid <= 0) return {};
    // The number may be that of another process by now: then the end of the socket tells of its end all the same.
    return UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, peer.pid, 0)));
}

}  // namespace shared_tensor::local
