#include "sockets.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <utility>

namespace bench {

namespace {

int checked(int result, const char* what) {
    if (result < 0) throw std::runtime_error(std::string(what) + ": " + std::strerror(errno));
    return result;
}

void no_delay(int fd) {
    const int on = 1;
    ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

sockaddr_un unix_address(const std::string& path) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path.copy(address.sun_path, sizeof address.sun_path - 1);
    return address;
}

}  // namespace

int listen_tcp(int& port) {
    const int fd = checked(::socket(AF_INET, SOCK_STREAM, 0), "socket");
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    checked(::bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address), "bind");
    checked(::listen(fd, 128), "listen");
    socklen_t size = sizeof address;
    ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size);
    port = ntohs(address.sin_port);
    return fd;
}

int listen_unix(const std::string& path) {
    ::unlink(path.c_str());
    const int fd = checked(::socket(AF_UNIX, SOCK_STREAM, 0), "socket");
    const sockaddr_un address = unix_address(path);
    checked(::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address), "bind");
    checked(::listen(fd, 128), "listen");
    return fd;
}

int connect_tcp(int port) {
    const int fd = checked(::socket(AF_INET, SOCK_STREAM, 0), "socket");
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    checked(::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address), "connect");
    no_delay(fd);
    return fd;
}

int connect_unix(const std::string& path) {
    const int fd = checked(::socket(AF_UNIX, SOCK_STREAM, 0), "socket");
    const sockaddr_un address = unix_address(path);
    checked(::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address), "connect");
    return fd;
}

void read_all(int fd, char* data, std::size_t size) {
    while (size > 0) {
        const ssize_t got = ::recv(fd, data, size, 0);
        if (got <= 0) throw std::runtime_error("the connection ended");
        data += got;
        size -= static_cast<std::size_t>(got);
    }
}

void write_all(int fd, const char* data, std::size_t size) {
    while (size > 0) {
        const ssize_t put = ::send(fd, data, size, MSG_NOSIGNAL);
        if (put <= 0) throw std::runtime_error("the connection ended");
        data += put;
        size -= static_cast<std::size_t>(put);
    }
}

HttpConnection::HttpConnection(HttpConnection&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), buffer_(std::move(other.buffer_)) {}

HttpConnection::~HttpConnection() {
    if (fd_ >= 0) ::close(fd_);
}

void HttpConnection::send(std::string_view request) { write_all(fd_, request.data(), request.size()); }

int HttpConnection::receive() {
    char chunk[16384];
    for (;;) {
        const std::size_t head = buffer_.find("\r\n\r\n");
        if (head != std::string::npos) {
            const std::size_t field = buffer_.find("Content-Length: ");
            const std::size_t length = field < head ? std::strtoull(&buffer_[field + 16], nullptr, 10) : 0;
            if (buffer_.size() >= head + 4 + length) {
                const int status = std::atoi(&buffer_[9]);
                buffer_.erase(0, head + 4 + length);
                return status;
            }
        }
        const ssize_t got = ::recv(fd_, chunk, sizeof chunk, 0);
        if (got <= 0) throw std::runtime_error("the connection ended");
        buffer_.append(chunk, static_cast<std::size_t>(got));
    }
}

std::string post(std::string_view path, std::string_view body, int port) {
    return "POST " + std::string(path) + " HTTP/1.1\r\nHost: 127.0.0.1:" + std::to_string(port) +
           "\r\nContent-Type: application/json\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" +
           std::string(body);
}

}  // namespace bench
