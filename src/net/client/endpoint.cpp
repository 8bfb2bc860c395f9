#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>

#include "base/bytes/check.hpp"
#include "base/system/unix_listener.hpp"
#include "net/client/client.hpp"
#include "net/client/client_connection.hpp"
#include "net/message/text.hpp"

namespace shared_tensor::net {

namespace {

constexpr int kDefaultPort = 2537;

[[noreturn]] void reject(std::string_view url, std::string_view why) {
    std::string text;
    text.append("\"").append(url).append("\" is no address of a server (").append(why);
    text.append("): use http://host:port, https://host:port, http://[::1]:port or unix:/path/to/socket");
    throw std::invalid_argument(text);
}

bool take_prefix(std::string_view& text, std::string_view prefix) {
    if (!same_token(text.substr(0, prefix.size()), prefix)) return false;
    text.remove_prefix(prefix.size());
    return true;
}

int read_port(std::string_view url, std::string_view text) {
    const auto port = parse_decimal(text);
    if (!port || *port == 0 || *port > 65535) reject(url, "the port is no number from 1 to 65535");
    return static_cast<int>(*port);
}

Endpoint unix_endpoint(std::string_view url, std::string_view path) {
    if (path.starts_with("//")) path.remove_prefix(2);  // unix:///path
    if (path.empty() || path.front() != '/') reject(url, "the socket's path is not absolute");
    Endpoint endpoint;
    endpoint.unix_socket = path;
    return endpoint;
}

/// Splits "host", "host:port", "[v6]", "[v6]:port".
Endpoint tcp_endpoint(std::string_view url, std::string_view rest) {
    if (rest.ends_with('/')) rest.remove_suffix(1);
    if (rest.find_first_of("/?#@") != std::string_view::npos) reject(url, "there is more than host and port");
    Endpoint endpoint;
    endpoint.port = kDefaultPort;
    std::string_view after;
    if (rest.starts_with('[')) {
        const std::size_t end = rest.find(']');
        if (end == std::string_view::npos) reject(url, "the bracket is not closed");
        endpoint.host = rest.substr(1, end - 1);
        after = rest.substr(end + 1);
    } else {
        const std::size_t colon = rest.find(':');
        endpoint.host = rest.substr(0, colon);
        after = colon == std::string_view::npos ? std::string_view() : rest.substr(colon);
    }
    if (endpoint.host.empty()) reject(url, "the host is missing");
    if (after.empty()) return endpoint;
    if (after.front() != ':') reject(url, "the port is no number from 1 to 65535");
    endpoint.port = read_port(url, after.substr(1));
    return endpoint;
}

}  // namespace

Endpoint Endpoint::parse(std::string_view url) {
    std::string_view rest = url;
    for (const char letter : url) {
        const auto c = static_cast<unsigned char>(letter);
        if (c <= 0x20 || c == 0x7f) reject("...", "it holds blanks or control characters");
    }
    if (take_prefix(rest, "unix:") || take_prefix(rest, "http+unix:")) return unix_endpoint(url, rest);
    if (take_prefix(rest, "http://")) return tcp_endpoint(url, rest);
    if (take_prefix(rest, "https://")) {
        Endpoint endpoint = tcp_endpoint(url, rest);
        endpoint.tls = true;
        return endpoint;
    }
    reject(url, "the scheme is missing or unknown");
}

std::string Endpoint::authority() const {
    if (!unix_socket.empty()) return "localhost";
    return host_and_port(host, port);
}

std::string Endpoint::url() const {
    std::string text = !unix_socket.empty() ? "unix:" : tls ? "https://" : "http://";
    return text.append(unix_socket.empty() ? authority() : unix_socket);
}

namespace {

using Deadline = std::chrono::steady_clock::time_point;
using Kind = TransportError::Kind;

[[noreturn]] void fail(Kind kind, const Endpoint& endpoint, std::string_view why) {
    std::string text = "cannot connect to ";
    throw TransportError(kind, false, text.append(endpoint.url()).append(": ").append(why));
}

/// 0, or errno of what went wrong.
int connect_before(int fd, const sockaddr* address, socklen_t size, Deadline deadline, const std::stop_token& stop) {
    if (::connect(fd, address, size) == 0) return 0;
    if (errno != EINPROGRESS && errno != EINTR) return errno;
    // Only here: shutdown() does nothing to a socket before it connects.
    const std::stop_callback stopped(stop, [fd] { ::shutdown(fd, SHUT_RDWR); });
    if (wait_ready(fd, POLLOUT, deadline) == 0) return ETIMEDOUT;
    int error = 0;
    socklen_t error_size = sizeof error;
    if (::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &error_size) != 0) return errno;
    return error;
}

void make_blocking(int fd) { ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) & ~O_NONBLOCK); }

void tune(int fd, const addrinfo& address) {
    const int on = 1;
    ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    ::setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    sockaddr_storage peer{};
    std::memcpy(&peer, address.ai_addr, std::min<std::size_t>(address.ai_addrlen, sizeof peer));
    if (is_loopback(peer)) unpace_loopback(fd);
}

struct Attempt {
    ProcessFd fd;
    int error = 0;
};

Attempt attempt_tcp(const addrinfo& address, Deadline deadline, const std::stop_token& stop) {
    Attempt made;
    made.fd =
        ProcessFd::opened([&] { return ::socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0); });
    if (!made.fd) return {ProcessFd(), errno};
    tune(made.fd.get(), address);
    made.error = connect_before(made.fd.get(), address.ai_addr, address.ai_addrlen, deadline, stop);
    if (made.error != 0) made.fd.reset();
    return made;
}

ProcessFd connect_tcp(const Endpoint& endpoint, Deadline deadline, Deadline limit, const std::stop_token& stop) {
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = AI_NUMERICSERV;
    addrinfo* found = nullptr;
    const int unknown = ::getaddrinfo(endpoint.host.c_str(), std::to_string(endpoint.port).c_str(), &hints, &found);
    if (unknown != 0) fail(Kind::connect, endpoint, ::gai_strerror(unknown));
    const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> addresses(found, &::freeaddrinfo);
    int error = 0;
    for (const addrinfo* one = found; one != nullptr && !stop.stop_requested(); one = one->ai_next) {
        // An address that does not answer leaves time for the others.
        const auto now = std::chrono::steady_clock::now();
        const auto until = one->ai_next == nullptr ? limit : now + (limit - now) / 2;
        Attempt made = attempt_tcp(*one, until, stop);
        if (made.fd) return std::move(made.fd);
        error = made.error;
    }
    const bool is_late = error == ETIMEDOUT && std::chrono::steady_clock::now() >= deadline;
    fail(is_late ? Kind::timeout : Kind::connect, endpoint, std::strerror(error));
}

ProcessFd connect_unix(const Endpoint& endpoint) {
    if (endpoint.unix_socket.size() >= sizeof(sockaddr_un::sun_path)) {
        fail(Kind::connect, endpoint, "the path is longer than 107 characters");
    }
    const sockaddr_un address = unix_address(endpoint.unix_socket);
    ProcessFd fd = ProcessFd::opened([] { return ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0); });
    if (!fd) fail(Kind::connect, endpoint, std::strerror(errno));
    if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
        fail(Kind::connect, endpoint, errno == EAGAIN ? "too many clients wait there already" : std::strerror(errno));
    }
    return fd;
}

}  // namespace

std::unique_ptr<Stream> connect_to(const Endpoint& endpoint, Deadline deadline, std::chrono::milliseconds timeout,
                                   const std::stop_token& stop) {
    const Deadline limit = std::min(deadline, std::chrono::steady_clock::now() + timeout);
    ProcessFd fd = endpoint.unix_socket.empty() ? connect_tcp(endpoint, deadline, limit, stop) : connect_unix(endpoint);
    make_blocking(fd.get());
    if (endpoint.tls) {
        SHARED_TENSOR_CHECK(endpoint.tls_client != nullptr, "https needs a TlsClient");
        return endpoint.tls_client->connect(std::move(fd), endpoint.host, limit, stop);
    }
    return std::make_unique<Stream>(std::move(fd));
}

}  // namespace shared_tensor::net
