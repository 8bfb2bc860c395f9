#include "net/server/listener.hpp"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cerrno>
#include <memory>
#include <system_error>

#include "base/bytes/check.hpp"
#include "net/message/text.hpp"
#include "net/stream/peer.hpp"

namespace shared_tensor::net {

namespace {

void set_option(int fd, int level, int option, int value) { ::setsockopt(fd, level, option, &value, sizeof value); }

constexpr int kBacklog = 4096;  // the kernel cuts it to net.core.somaxconn
constexpr int kSocketFlags = SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK;

[[noreturn]] void fail(int error, const std::string& what) {
    throw std::system_error(error, std::generic_category(), what);
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
             "cannot listen on " + host_and_port(host, port) + " (" + ::gai_strerror(error) + ")");
    }
    return {found, &::freeaddrinfo};
}

/// IPv4 first: most clients write 127.0.0.1 for "localhost".
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
    const std::string what = "cannot listen on " + host_and_port(host, port);
    const AddressList addresses = resolve(host, port);
    const addrinfo& address = choose(*addresses);
    Listener made;
    made.tcp_ = UniqueFd(SHARED_TENSOR_CHECK_ERRNO(::socket(address.ai_family, kSocketFlags, 0), what));
    // A port whose old connections are in TIME_WAIT can be used again; a port with another listener cannot.
    set_option(made.fd(), SOL_SOCKET, SO_REUSEADDR, 1);
    // Accepted connections inherit the next two.
    set_option(made.fd(), IPPROTO_TCP, TCP_NODELAY, 1);
    set_option(made.fd(), SOL_SOCKET, SO_KEEPALIVE, 1);
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

Accepted Listener::accept() const {
    sockaddr_storage address{};
    socklen_t size = sizeof address;
    Accepted accepted;
    accepted.fd =
        ProcessFd::opened([&] { return ::accept4(fd(), reinterpret_cast<sockaddr*>(&address), &size, SOCK_CLOEXEC); });
    if (!accepted.fd) return accepted;
    accepted.loopback = !unix_ && is_loopback(address);
    accepted.peer = unix_ ? unix_peer(accepted.fd.get()) : tcp_peer(address);
    if (accepted.loopback) unpace_loopback(accepted.fd.get());
    return accepted;
}

}  // namespace shared_tensor::net
