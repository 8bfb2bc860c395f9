#include "sockets.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
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
    const int fd = checked(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), "socket");
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    checked(::bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address), "bind");
    checked(::listen(fd, 128), "listen");
    socklen_t size = sizeof address;
    checked(::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size), "getsockname");
    no_delay(fd);  // the connections inherit it
    port = ntohs(address.sin_port);
    return fd;
}

int listen_unix(const std::string& path) {
    ::unlink(path.c_str());
    const int fd = checked(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), "socket");
    const sockaddr_un address = unix_address(path);
    checked(::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address), "bind");
    checked(::listen(fd, 128), "listen");
    return fd;
}

int connect_tcp(int port) {
    const int fd = checked(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), "socket");
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    checked(::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address), "connect");
    no_delay(fd);
    return fd;
}

int connect_unix(const std::string& path) {
    const int fd = checked(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), "socket");
    const sockaddr_un address = unix_address(path);
    checked(::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address), "connect");
    return fd;
}

namespace {

/// A message of one byte with room for one descriptor.
struct DescriptorMessage {
    char byte = 0;
    iovec part{&byte, 1};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    msghdr message{};
    DescriptorMessage() {
        message.msg_iov = &part;
        message.msg_iovlen = 1;
        message.msg_control = control;
        message.msg_controllen = sizeof control;
    }
    DescriptorMessage(const DescriptorMessage&) = delete;
    DescriptorMessage& operator=(const DescriptorMessage&) = delete;
};

}  // namespace

void send_descriptor(int fd, int descriptor) {
    DescriptorMessage out;
    cmsghdr* header = CMSG_FIRSTHDR(&out.message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof descriptor);
    std::memcpy(CMSG_DATA(header), &descriptor, sizeof descriptor);
    checked(static_cast<int>(::sendmsg(fd, &out.message, 0)), "sendmsg");
}

int receive_descriptor(int fd) {
    DescriptorMessage in;
    checked(static_cast<int>(::recvmsg(fd, &in.message, MSG_CMSG_CLOEXEC)), "recvmsg");
    const cmsghdr* header = CMSG_FIRSTHDR(&in.message);
    if (header == nullptr) throw std::runtime_error("no descriptor came");
    int descriptor = -1;
    std::memcpy(&descriptor, CMSG_DATA(header), sizeof descriptor);
    return descriptor;
}

void use_reno(int fd) { checked(::setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "reno", 4), "TCP_CONGESTION reno"); }

void read_all(int fd, void* data, std::size_t size) {
    for (auto* next = static_cast<char*>(data); size > 0;) {
        const ssize_t got = ::recv(fd, next, size, 0);
        if (got <= 0) throw std::runtime_error("the connection ended");
        next += got;
        size -= static_cast<std::size_t>(got);
    }
}

void write_all(int fd, const void* data, std::size_t size) {
    for (const auto* next = static_cast<const char*>(data); size > 0;) {
        const ssize_t put = ::send(fd, next, size, MSG_NOSIGNAL);
        if (put <= 0) throw std::runtime_error("the connection ended");
        next += put;
        size -= static_cast<std::size_t>(put);
    }
}

int free_port() {
    int port = 0;
    const Socket listener(listen_tcp(port));
    return port;
}

Socket::Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

Socket::~Socket() {
    if (fd_ >= 0) ::close(fd_);
}

}  // namespace bench
