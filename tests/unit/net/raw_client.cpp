#include "raw_client.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>

#include "base/bytes/check.hpp"

namespace shared_tensor::test {

namespace {

UniqueFd new_socket(int family) {
    return UniqueFd(SHARED_TENSOR_CHECK_ERRNO(::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0), "socket"));
}

struct Address {
    Address(const std::string& ip, int port) {
        const bool v6 = ip.find(':') != std::string::npos;
        auto& four = reinterpret_cast<sockaddr_in&>(storage);
        auto& six = reinterpret_cast<sockaddr_in6&>(storage);
        storage.ss_family = v6 ? AF_INET6 : AF_INET;
        four.sin_port = htons(static_cast<std::uint16_t>(port));  // at the same place as sin6_port
        ::inet_pton(storage.ss_family, ip.c_str(), v6 ? static_cast<void*>(&six.sin6_addr) : &four.sin_addr);
        size = v6 ? sizeof six : sizeof four;
    }
    const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
    sockaddr_storage storage{};
    socklen_t size = 0;
};

std::size_t content_length(const std::string& head) {
    const std::size_t at = head.find("Content-Length: ");
    return at == std::string::npos ? 0 : std::strtoull(head.c_str() + at + 16, nullptr, 10);
}

}  // namespace

RawClient::RawClient(UniqueFd fd) : fd_(std::move(fd)) {
    const timeval limit{30, 0};
    ::setsockopt(this->fd(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    ::setsockopt(this->fd(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    const int on = 1;
    ::setsockopt(this->fd(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

RawClient::RawClient(int port, const std::string& ip, int receive_buffer, const std::string& from)
    : RawClient(new_socket(Address(ip, port).storage.ss_family)) {
    const Address address(ip, port), source(from.empty() ? ip : from, 0);
    if (receive_buffer > 0) ::setsockopt(fd(), SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof receive_buffer);
    if (!from.empty()) SHARED_TENSOR_CHECK_ERRNO(::bind(fd(), source.get(), source.size), "bind");
    SHARED_TENSOR_CHECK_ERRNO(::connect(fd(), address.get(), address.size), "connect");
}

RawClient::RawClient(const std::string& unix_socket) : RawClient(new_socket(AF_UNIX)) {
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

bool RawClient::send_each(const std::vector<std::string>& texts) {
    std::string all;
    for (const std::string& text : texts)
        all += text;
    return send(all);
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

std::string chunked(std::string_view body, std::size_t piece, std::string_view more_headers) {
    std::string text = "POST /p HTTP/1.1\r\nHost: here\r\nTransfer-Encoding: chunked\r\n";
    text.append(more_headers).append("\r\n");
    char size[20];
    for (; !body.empty(); body.remove_prefix(std::min(piece, body.size()))) {
        const std::string_view part = body.substr(0, piece);
        std::snprintf(size, sizeof size, "%zx\r\n", part.size());
        text.append(size).append(part).append("\r\n");
    }
    return text.append("0\r\n\r\n");
}

RawServer::RawServer() : fd_(new_socket(AF_INET)) {
    Address address("127.0.0.1", 0);
    SHARED_TENSOR_CHECK_ERRNO(::bind(fd_.get(), address.get(), address.size), "bind");
    SHARED_TENSOR_CHECK_ERRNO(::listen(fd_.get(), 16), "listen");
    ::getsockname(fd_.get(), reinterpret_cast<sockaddr*>(&address.storage), &address.size);
    port_ = ntohs(reinterpret_cast<const sockaddr_in&>(address.storage).sin_port);
}

RawClient RawServer::accept() {
    return RawClient(
        UniqueFd(SHARED_TENSOR_CHECK_ERRNO(::accept4(fd_.get(), nullptr, nullptr, SOCK_CLOEXEC), "accept")));
}

std::string RawServer::read_request(RawClient& connection) {
    const RawAnswer request = connection.read_answer();
    return request.head + request.body;
}

}  // namespace shared_tensor::test
