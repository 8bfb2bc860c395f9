#include "raw_client.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>

#include <array>
#include <cstdlib>
#include <cstring>

#include "base/bytes/check.hpp"

namespace shared_tensor::test {

namespace {

void be_patient(int fd) {
    const timeval limit{30, 0};
    ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    ::setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    const int on = 1;
    ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

std::size_t content_length(const std::string& head) {
    const std::size_t at = head.find("Content-Length: ");
    return at == std::string::npos ? 0 : std::strtoull(head.c_str() + at + 16, nullptr, 10);
}

}  // namespace

RawClient::RawClient(int port, const std::string& ip) {
    const bool v6 = ip.find(':') != std::string::npos;
    fd_.reset(SHARED_TENSOR_CHECK_ERRNO(::socket(v6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), "socket"));
    be_patient(fd());
    sockaddr_in6 six{};
    six.sin6_family = AF_INET6;
    six.sin6_port = htons(static_cast<std::uint16_t>(port));
    sockaddr_in four{};
    four.sin_family = AF_INET;
    four.sin_port = six.sin6_port;
    if (v6) {
        ::inet_pton(AF_INET6, ip.c_str(), &six.sin6_addr);
    } else {
        ::inet_pton(AF_INET, ip.c_str(), &four.sin_addr);
    }
    const auto* address = v6 ? reinterpret_cast<const sockaddr*>(&six) : reinterpret_cast<const sockaddr*>(&four);
    SHARED_TENSOR_CHECK_ERRNO(::connect(fd(), address, v6 ? sizeof six : sizeof four), "connect");
}

RawClient::RawClient(const std::string& unix_socket) {
    fd_.reset(SHARED_TENSOR_CHECK_ERRNO(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), "socket"));
    be_patient(fd());
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, unix_socket.c_str(), sizeof address.sun_path - 1);
    SHARED_TENSOR_CHECK_ERRNO(::connect(fd(), reinterpret_cast<const sockaddr*>(&address), sizeof address), "connect");
}

bool RawClient::send(std::string_view bytes) {
    while (!bytes.empty()) {
        const ssize_t sent = ::send(fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
        if (sent <= 0) return false;
        bytes.remove_prefix(static_cast<std::size_t>(sent));
    }
    return true;
}

bool RawClient::fill() {
    std::array<char, 65536> buffer;
    const ssize_t got = ::recv(fd(), buffer.data(), buffer.size(), 0);
    if (got <= 0) return false;
    input_.append(buffer.data(), static_cast<std::size_t>(got));
    return true;
}

RawAnswer RawClient::read_answer(bool to_head) {
    RawAnswer answer;
    std::size_t end = std::string::npos;
    while ((end = input_.find("\r\n\r\n")) == std::string::npos) {
        if (!fill()) return answer;
    }
    answer.head = input_.substr(0, end + 4);
    const std::size_t length = to_head ? 0 : content_length(answer.head);
    while (input_.size() < end + 4 + length) {
        if (!fill()) return answer;
    }
    answer.body = input_.substr(end + 4, length);
    input_.erase(0, end + 4 + length);
    answer.status = std::atoi(answer.head.c_str() + 9);
    return answer;
}

std::string RawClient::read_bytes(std::size_t count) {
    while (input_.size() < count && fill()) {
    }
    std::string bytes = input_.substr(0, count);
    input_.erase(0, count);
    return bytes;
}

std::string RawClient::read_to_end() {
    while (fill()) {
    }
    return std::exchange(input_, {});
}

bool RawClient::is_closed() {
    errno = 0;
    return input_.empty() && !fill() && errno != EAGAIN;
}

void RawClient::half_close() { ::shutdown(fd(), SHUT_WR); }

void RawClient::reset() {
    const linger at_once{1, 0};
    ::setsockopt(fd(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    fd_.reset();
}

std::string post(std::string_view path, std::string_view body, std::string_view more_headers) {
    std::string text = "POST ";
    text.append(path).append(" HTTP/1.1\r\nHost: here\r\nContent-Length: ").append(std::to_string(body.size()));
    return text.append("\r\n").append(more_headers).append("\r\n").append(body);
}

std::string get(std::string_view path, std::string_view more_headers) {
    std::string text = "GET ";
    return text.append(path).append(" HTTP/1.1\r\nHost: here\r\n").append(more_headers).append("\r\n");
}

RawServer::RawServer() {
    fd_.reset(SHARED_TENSOR_CHECK_ERRNO(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), "socket"));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    SHARED_TENSOR_CHECK_ERRNO(::bind(fd_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), "bind");
    SHARED_TENSOR_CHECK_ERRNO(::listen(fd_.get(), 16), "listen");
    socklen_t size = sizeof address;
    ::getsockname(fd_.get(), reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
}

RawClient RawServer::accept() {
    UniqueFd fd(SHARED_TENSOR_CHECK_ERRNO(::accept4(fd_.get(), nullptr, nullptr, SOCK_CLOEXEC), "accept"));
    be_patient(fd.get());
    return RawClient(std::move(fd));
}

std::string RawServer::read_request(RawClient& connection) {
    std::string request;
    std::array<char, 4096> buffer;
    while (true) {
        const std::size_t end = request.find("\r\n\r\n");
        if (end != std::string::npos && request.size() >= end + 4 + content_length(request)) return request;
        const ssize_t got = ::recv(connection.fd(), buffer.data(), buffer.size(), 0);
        if (got <= 0) return request;
        request.append(buffer.data(), static_cast<std::size_t>(got));
    }
}

}  // namespace shared_tensor::test
