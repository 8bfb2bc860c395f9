#pragma once

// An HTTP client for tests. It uses no code of the project, so it finds mistakes that client and server both make.

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace shared_tensor::test {

using HeaderList = std::vector<std::pair<std::string, std::string>>;

struct HttpReply {
    int status = 0;
    std::string head;  ///< status line and header lines
    std::string body;

    /// Returns the first value of a header; empty if there is none. The name is compared without case.
    std::string header(std::string_view name) const {
        const auto same = [](char a, char b) { return std::tolower(a) == std::tolower(b); };
        const std::string wanted = "\r\n" + std::string(name) + ":";
        const auto at = std::search(head.begin(), head.end(), wanted.begin(), wanted.end(), same);
        if (at == head.end()) return {};
        std::string value(at + static_cast<std::ptrdiff_t>(wanted.size()), std::find(at + 2, head.end(), '\r'));
        value.erase(0, value.find_first_not_of(' '));
        return value;
    }
};

inline sockaddr_in loopback(int port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
}

/// Returns a socket that is connected to 127.0.0.1; -1 with errno.
inline int connected_socket(int port) {
    const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const sockaddr_in address = loopback(port);
    if (::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) return fd;
    ::close(fd);
    return -1;
}

/// One connection to 127.0.0.1. A read that takes more than 30 s throws.
class HttpPeer {
public:
    explicit HttpPeer(int port) : port_(port), fd_(connected_socket(port)) {
        if (fd_ < 0) fail("connect");
    }
    HttpPeer(HttpPeer&& other) noexcept
        : port_(other.port_), fd_(std::exchange(other.fd_, -1)), input_(std::move(other.input_)) {}
    HttpPeer& operator=(HttpPeer&&) = delete;
    ~HttpPeer() { close(); }

    void close() {
        if (fd_ >= 0) ::close(std::exchange(fd_, -1));
    }

    void send(std::string_view bytes) {
        while (!bytes.empty()) {
            const ssize_t sent = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
            if (sent <= 0) fail("send");
            bytes.remove_prefix(static_cast<std::size_t>(sent));
        }
    }

    /// Adds Host and Content-Length, and Content-Type: application/json to a POST, unless `headers` hold them.
    void request(std::string_view method, std::string_view target, std::string_view body = {},
                 const HeaderList& headers = {}) {
        std::string text = std::string(method) + ' ' + std::string(target) + " HTTP/1.1\r\n";
        const auto given = [&](std::string_view name) {
            return std::any_of(headers.begin(), headers.end(),
                               [&](const auto& header) { return header.first == name; });
        };
        if (!given("Host")) text += "Host: 127.0.0.1:" + std::to_string(port_) + "\r\n";
        if (method == "POST" && !given("Content-Type")) text += "Content-Type: application/json\r\n";
        if (method == "POST" || !body.empty()) text += "Content-Length: " + std::to_string(body.size()) + "\r\n";
        for (const auto& [name, value] : headers)
            text += name + ": " + value + "\r\n";
        send(text + "\r\n" + std::string(body));
    }

    /// Reads the status line and the headers, but not the body.
    HttpReply read_head() {
        HttpReply reply;
        std::size_t end = 0;
        while ((end = input_.find("\r\n\r\n")) == std::string::npos)
            receive();
        reply.head = input_.substr(0, end + 2);
        reply.status = std::stoi(reply.head.substr(9, 3));
        input_.erase(0, end + 4);
        return reply;
    }

    /// Reads up to the next line end, and returns the line without it.
    std::string read_line() {
        std::size_t end = 0;
        while ((end = input_.find("\r\n")) == std::string::npos)
            receive();
        return read_bytes(end + 2).substr(0, end);
    }
    std::string read_bytes(std::size_t count) {
        while (input_.size() < count)
            receive();
        std::string bytes = input_.substr(0, count);
        input_.erase(0, count);
        return bytes;
    }

    /// Reads the next piece of a chunked body; empty at the end.
    std::string read_chunk() {
        const std::size_t size = std::stoul(read_line(), nullptr, 16);
        return read_bytes(size + 2).substr(0, size);
    }
    /// Reads a chunked body.
    std::string read_chunks() {
        std::string body;
        for (std::string piece = read_chunk(); !piece.empty(); piece = read_chunk())
            body += piece;
        return body;
    }

    /// Reads a reply. `has_body`: false after HEAD.
    HttpReply read(bool has_body = true) {
        HttpReply reply = read_head();
        if (!has_body) return reply;
        if (reply.header("Transfer-Encoding") == "chunked") {
            reply.body = read_chunks();
        } else {
            reply.body = read_bytes(std::stoul("0" + reply.header("Content-Length")));
        }
        return reply;
    }

    /// Whether bytes or the end of the connection can be read now. Does not block.
    bool readable() const {
        pollfd poll{fd_, POLLIN, 0};
        return ::poll(&poll, 1, 0) > 0;
    }

    /// Waits for bytes or the end of the connection. Returns whether it is the end.
    bool closed_by_peer() {
        char byte = 0;
        wait();
        return ::recv(fd_, &byte, 1, 0) <= 0;
    }

private:
    [[noreturn]] static void fail(const char* what) {
        throw std::runtime_error(std::string(what) + ": " + std::strerror(errno));
    }
    void wait() {
        pollfd poll{fd_, POLLIN, 0};
        if (::poll(&poll, 1, 30'000) <= 0) throw std::runtime_error("no answer in half a minute");
    }
    void receive() {
        wait();
        char bytes[65536];
        const ssize_t got = ::recv(fd_, bytes, sizeof bytes, 0);
        if (got <= 0) throw std::runtime_error("the connection ended before the answer did: " + input_);
        input_.append(bytes, static_cast<std::size_t>(got));
    }

    int port_;
    int fd_;
    std::string input_;
};

/// Sends one request on a connection of its own.
inline HttpReply http_request(int port, std::string_view method, std::string_view target, std::string_view body = {},
                              const HeaderList& headers = {}) {
    HttpPeer peer(port);
    peer.request(method, target, body, headers);
    return peer.read(method != "HEAD");
}

}  // namespace shared_tensor::test
