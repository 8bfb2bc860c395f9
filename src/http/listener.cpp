#include "http/listener.hpp"

#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <memory>
#include <system_error>

#include "util/check.hpp"

namespace shared_tensor::http {

namespace {

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
    const int on = 1;  // a port whose old connections are in TIME_WAIT is free; one with a listener is not
    ::setsockopt(made.fd(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
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

}  // namespace shared_tensor::http
