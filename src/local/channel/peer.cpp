#include "local/channel/peer.hpp"

#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/bytes/check.hpp"

namespace shared_tensor::local {

namespace {

constexpr int kPeerPidfd = 77;  // SO_PEERPIDFD, since Linux 6.5; the headers of many machines are older

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
    // The pid may have been reused by another process. Then the end of the socket still shows the end of the peer.
    return UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, peer.pid, 0)));
}

}  // namespace shared_tensor::local
