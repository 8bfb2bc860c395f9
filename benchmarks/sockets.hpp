#pragma once

#include <cstddef>
#include <string>

namespace bench {

/// Plain blocking sockets, the baseline for all figures. Errors throw std::runtime_error.
int listen_tcp(int& port);
int listen_unix(const std::string& path);
int connect_tcp(int port);
int connect_unix(const std::string& path);
/// Selects reno instead of the machine's congestion control, which may pace even loopback. Call it before data is sent.
void use_reno(int fd);
void read_all(int fd, void* data, std::size_t size);
void write_all(int fd, const void* data, std::size_t size);

/// Sends a descriptor over a Unix socket, with one byte.
void send_descriptor(int fd, int descriptor);
int receive_descriptor(int fd);

/// A TCP port that was free at the time of the call.
int free_port();

/// Closes its file descriptor.
class Socket {
public:
    explicit Socket(int fd) : fd_(fd) {}
    ~Socket();
    Socket(Socket&& other) noexcept;
    Socket& operator=(Socket&&) = delete;
    int fd() const { return fd_; }

private:
    int fd_;
};

}  // namespace bench
