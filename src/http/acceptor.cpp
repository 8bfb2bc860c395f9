#include "http/acceptor.hpp"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <system_error>
#include <utility>

#include "http/peer.hpp"
#include "util/check.hpp"
#include "util/log.hpp"

namespace shared_tensor::http {

namespace {

constexpr std::chrono::milliseconds kRest{50};
constexpr int kAtOnce = 64;  // then the poller looks after its other events

/// Errors that belong to the client that waited, not to us (accept(2)).
bool is_the_clients(int error) {
    static constexpr int kTheirs[] = {EINTR,     ECONNABORTED, EPROTO,       EPERM,      ENETDOWN,   ENOPROTOOPT,
                                      EHOSTDOWN, ENONET,       EHOSTUNREACH, EOPNOTSUPP, ENETUNREACH};
    return std::find(std::begin(kTheirs), std::end(kTheirs), error) != std::end(kTheirs);
}

UniqueFd open_spare() { return UniqueFd(::open("/dev/null", O_RDONLY | O_CLOEXEC)); }

void set_option(int fd, int level, int option, int value) { ::setsockopt(fd, level, option, &value, sizeof value); }

constexpr int kBacklog = 4096;  // the kernel cuts it to net.core.somaxconn
constexpr int kSocketFlags = SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK;

[[noreturn]] void fail(int error, const std::string& what) {
    throw std::system_error(error, std::generic_category(), what);
}

std::string place(const std::string& host, int port) {
    const bool v6 = host.find(':') != std::string::npos;
    std::string text;
    text.append(v6 ? "[" : "").append(host).append(v6 ? "]:" : ":").append(std::to_string(port));
    return text;
}

using AddressList = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

AddressList resolve(const std::string& host, int port) {
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
    addrinfo* found = nullptr;
    const int error = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
    if (error != 0) {
        fail(error == EAI_SYSTEM ? errno : EADDRNOTAVAIL,
             "cannot listen on " + place(host, port) + " (" + ::gai_strerror(error) + ")");
    }
    return {found, &::freeaddrinfo};
}

/// IPv4 first: "localhost" is mostly spelled 127.0.0.1 on the other side.
const addrinfo& choose(const addrinfo& first) {
    for (const addrinfo* one = &first; one != nullptr; one = one->ai_next) {
        if (one->ai_family == AF_INET) return *one;
    }
    return first;
}

int bound_port(int fd) {
    sockaddr_storage address{};
    socklen_t size = sizeof address;
    SHARED_TENSOR_CHECK_ERRNO(::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size), "getsockname");
    return ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(address).sin6_port
                                               : reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

}  // namespace

Listener Listener::tcp(const std::string& host, int port) {
    const std::string what = "cannot listen on " + place(host, port);
    const AddressList addresses = resolve(host, port);
    const addrinfo& address = choose(*addresses);
    Listener made;
    made.tcp_ = UniqueFd(SHARED_TENSOR_CHECK_ERRNO(::socket(address.ai_family, kSocketFlags, 0), what));
    // a port whose old connections are in TIME_WAIT is free; one with a listener is not
    set_option(made.fd(), SOL_SOCKET, SO_REUSEADDR, 1);
    SHARED_TENSOR_CHECK_ERRNO(::bind(made.fd(), address.ai_addr, address.ai_addrlen), what);
    SHARED_TENSOR_CHECK_ERRNO(::listen(made.fd(), kBacklog), what);
    made.port_ = bound_port(made.fd());
    return made;
}

Listener Listener::unix_socket(const std::string& path) {
    Listener made;
    made.unix_.emplace(path);
    return made;
}

Acceptor::Acceptor(std::vector<Listener> listeners, Poller& poller)
    : poller_(poller), listeners_(std::move(listeners)), spare_(open_spare()) {
    listeners_.with([&](const std::vector<Listener>& all) {
        resting_until_.resize(all.size());
        for (std::size_t i = 0; i < all.size(); ++i) {
            if (!all[i].is_unix()) {
                set_option(all[i].fd(), IPPROTO_TCP, TCP_NODELAY, 1);  // both are inherited by the connections
                set_option(all[i].fd(), SOL_SOCKET, SO_KEEPALIVE, 1);
            }
            SHARED_TENSOR_CHECK_ERRNO(poller_.add_listener(all[i].fd(), i) ? 0 : -1, "epoll_ctl");
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
bool Acceptor::accept_by_spare(std::size_t index, const Take& turn_away) {
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

/// Whether the listener can go on.
bool Acceptor::accept_some(std::size_t index, const Take& take, const Take& turn_away) {
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
        if (error == EAGAIN || error == EWOULDBLOCK) return true;
        if (is_the_clients(error) && ++failures < kAtOnce / 2) continue;
        if (!std::exchange(complained_, true)) {
            log::warn("cannot accept connections just now (", std::strerror(error), "); trying again until it works");
        }
        if ((error == EMFILE || error == ENFILE) && accept_by_spare(index, turn_away)) continue;
        return false;
    }
    return true;
}

void Acceptor::accept_from(std::size_t index, const Take& take, const Take& turn_away) {
    if (accept_some(index, take, turn_away)) return;
    poller_.remove(fd(index));
    resting_until_[index] = std::chrono::steady_clock::now() + kRest;
    poller_.wake();  // to learn of the new time
}

SteadyTime Acceptor::resume(SteadyTime now) {
    SteadyTime next = SteadyTime::max();
    for (std::size_t i = 0; i < resting_until_.size(); ++i) {
        SteadyTime& until = resting_until_[i];
        if (until == SteadyTime{}) continue;
        if (until <= now) {
            const int listener = fd(i);
            until = listener < 0 || poller_.add_listener(listener, i) ? SteadyTime{} : now + kRest;
        }
        if (until != SteadyTime{}) next = std::min(next, until);
    }
    return next;
}

void Acceptor::close() {
    std::vector<Listener> closed;
    listeners_.with([&](std::vector<Listener>& all) { closed.swap(all); });
}

}  // namespace shared_tensor::http
