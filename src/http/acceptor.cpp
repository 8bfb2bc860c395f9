#include "http/acceptor.hpp"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "http/peer.hpp"
#include "util/log.hpp"

namespace shared_tensor::http {

namespace {

constexpr int kAtOnce = 64;  // then the poller looks after its other events

/// Errors that belong to the client that waited, not to us (accept(2)).
bool is_the_clients(int error) {
    switch (error) {
        case EINTR:
        case ECONNABORTED:
        case EPROTO:
        case EPERM:
        case ENETDOWN:
        case ENOPROTOOPT:
        case EHOSTDOWN:
        case ENONET:
        case EHOSTUNREACH:
        case EOPNOTSUPP:
        case ENETUNREACH: return true;
        default: return false;
    }
}

UniqueFd open_spare() { return UniqueFd(::open("/dev/null", O_RDONLY | O_CLOEXEC)); }

void set_option(int fd, int level, int option, int value) { ::setsockopt(fd, level, option, &value, sizeof value); }

}  // namespace

Acceptor::Acceptor(std::vector<Listener> listeners)
    : count_(listeners.size()), listeners_(std::move(listeners)), spare_(open_spare()) {
    listeners_.with([](const std::vector<Listener>& all) {
        for (const Listener& one : all) {
            if (one.is_unix()) continue;
            set_option(one.fd(), IPPROTO_TCP, TCP_NODELAY, 1);  // both are inherited by the connections
            set_option(one.fd(), SOL_SOCKET, SO_KEEPALIVE, 1);
        }
    });
}

int Acceptor::fd(std::size_t index) const {
    return listeners_.with([&](const std::vector<Listener>& all) { return index < all.size() ? all[index].fd() : -1; });
}

ProcessFd Acceptor::accept_one(std::size_t index, Accepted& accepted) {
    sockaddr_storage address{};
    socklen_t size = sizeof address;
    bool is_unix = false;
    // The lock keeps close() from giving the number of the listener's descriptor to somebody else meanwhile.
    ProcessFd fd = listeners_.with([&](const std::vector<Listener>& all) {
        if (index >= all.size()) {
            errno = EAGAIN;
            return ProcessFd();
        }
        is_unix = all[index].is_unix();
        return ProcessFd::opened(
            [&] { return ::accept4(all[index].fd(), reinterpret_cast<sockaddr*>(&address), &size, SOCK_CLOEXEC); });
    });
    if (!fd) return fd;
    accepted.loopback = !is_unix && is_loopback(address);
    accepted.peer = is_unix ? unix_peer(fd.get()) : tcp_peer(address);
    if (accepted.loopback) unpace_loopback(fd.get());
    return fd;
}

/// Gives the spare descriptor up for one client, which goes at once, and takes it back. False when nobody was let in.
bool Acceptor::accept_by_spare(std::size_t index, const std::function<void(Accepted)>& turn_away) {
    if (!spare_) spare_ = open_spare();
    if (!spare_) return false;
    spare_.reset();
    Accepted accepted;
    accepted.fd = accept_one(index, accepted);
    const bool accepted_one = static_cast<bool>(accepted.fd);
    if (accepted_one) turn_away(std::move(accepted));
    spare_ = open_spare();
    return accepted_one;
}

Acceptor::Outcome Acceptor::accept_some(std::size_t index, const std::function<void(Accepted)>& take,
                                        const std::function<void(Accepted)>& turn_away) {
    int failures = 0;
    for (int i = 0; i < kAtOnce; ++i) {
        Accepted accepted;
        accepted.fd = accept_one(index, accepted);
        if (accepted.fd) {
            complained_ = false;
            take(std::move(accepted));
            continue;
        }
        const int error = errno;
        if (error == EAGAIN || error == EWOULDBLOCK) return Outcome::drained;
        if (is_the_clients(error) && ++failures < kAtOnce / 2) continue;
        if (!std::exchange(complained_, true)) {
            log::warn("cannot accept connections just now (", std::strerror(error), "); trying again until it works");
        }
        if ((error == EMFILE || error == ENFILE) && accept_by_spare(index, turn_away)) continue;
        return Outcome::rest;
    }
    return Outcome::more;
}

void Acceptor::close() {
    std::vector<Listener> closed;
    listeners_.with([&](std::vector<Listener>& all) { closed.swap(all); });
}

}  // namespace shared_tensor::http
