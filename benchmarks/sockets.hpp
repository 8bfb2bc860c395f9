#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace bench {

/// Bytes of a ping and of a pong.
inline constexpr std::size_t kPingBytes = 64;

/// Plain blocking sockets: the measure that everything else is held against. Errors throw std::runtime_error.
int listen_tcp(int& port);
int listen_unix(const std::string& path);
int connect_tcp(int port);
int connect_unix(const std::string& path);
void read_all(int fd, char* data, std::size_t size);
void write_all(int fd, const char* data, std::size_t size);

/// One HTTP/1.1 connection that sends prepared bytes and takes an answer with Content-Length, as cheaply as can be.
class HttpConnection {
public:
    explicit HttpConnection(int fd) : fd_(fd) {}
    ~HttpConnection();
    HttpConnection(HttpConnection&& other) noexcept;
    HttpConnection& operator=(HttpConnection&&) = delete;

    void send(std::string_view request);
    /// Returns the status.
    int receive();
    int round_trip(std::string_view request) {
        send(request);
        return receive();
    }
    int fd() const { return fd_; }

private:
    int fd_;
    std::string buffer_;
};

/// A whole POST request.
std::string post(std::string_view path, std::string_view body, int port);

}  // namespace bench
