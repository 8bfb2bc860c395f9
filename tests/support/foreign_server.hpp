#pragma once

// A server that does not speak HTTP. POSIX only.

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>

namespace shared_tensor::test {

/// Listens, and sends the greeting of a mail server to each client, or nothing at all.
class ForeignServer {
public:
    explicit ForeignServer(std::string_view greeting = "220 mail.example ESMTP ready\r\n") {
        listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        socklen_t size = sizeof address;
        if (::bind(listener_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
            ::listen(listener_, 16) != 0 || ::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size) != 0)
            throw std::runtime_error("the foreign server cannot listen");
        port_ = ntohs(address.sin_port);
        greeting_ = std::jthread([this, greeting] {
            for (;;) {
                const int peer = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
                if (peer < 0) return;
                (void)::send(peer, greeting.data(), greeting.size(), MSG_NOSIGNAL);
                std::array<char, 4096> ignored;
                do {  // unread bytes would cause a reset at close()
                } while (::recv(peer, ignored.data(), ignored.size(), 0) > 0 && greeting.empty());
                ::close(peer);
            }
        });
    }
    ForeignServer(const ForeignServer&) = delete;
    ForeignServer& operator=(const ForeignServer&) = delete;
    ~ForeignServer() {
        ::shutdown(listener_, SHUT_RDWR);
        greeting_.join();
        ::close(listener_);
    }
    std::string url() const { return "http://127.0.0.1:" + std::to_string(port_); }

private:
    int listener_ = -1, port_ = 0;
    std::jthread greeting_;
};

}  // namespace shared_tensor::test
