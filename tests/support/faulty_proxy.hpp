#pragma once

// A TCP proxy for tests that cuts connections and damages bytes. POSIX only.

#include <array>
#include <atomic>
#include <functional>
#include <limits>
#include <thread>

#include "support/raw_http.hpp"

namespace shared_tensor::test {

/// The faults of one connection. Offsets count all bytes of one direction, with the heads of HTTP.
struct Harm {
    static constexpr std::uint64_t kNever = std::numeric_limits<std::uint64_t>::max();
    std::uint64_t cut_down = kNever;     ///< bytes to the client after which both sides are closed
    std::uint64_t cut_up = kNever;       ///< bytes to the server after which both sides are closed
    std::uint64_t damage_down = kNever;  ///< offset of a byte to the client that is changed
    std::uint64_t damage_up = kNever;    ///< offset of a byte to the server that is changed
    bool reset = false;                  ///< at the end the peers get a reset (RST)
};

/// Listens on a port that the kernel chooses. Accepts connections after pass_on_to().
class FaultyProxy {
public:
    /// `harm` returns the faults of a connection; connections count from 1. It is called on the accepting thread.
    explicit FaultyProxy(std::function<Harm(int connection)> harm = [](int) { return Harm(); })
        : harm_(std::move(harm)), listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
        sockaddr_in address = loopback(0);
        socklen_t size = sizeof address;
        if (::bind(listener_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
            ::listen(listener_, 256) != 0 ||
            ::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size) != 0)
            throw std::runtime_error("the proxy cannot listen");
        port_ = ntohs(address.sin_port);
    }
    FaultyProxy(const FaultyProxy&) = delete;
    FaultyProxy& operator=(const FaultyProxy&) = delete;
    ~FaultyProxy() {
        stop_ = true;
        if (accepting_.joinable()) accepting_.join();
        ::close(listener_);
        for (std::jthread& one : threads_)
            one.join();
    }

    int port() const { return port_; }
    std::string authority() const { return "127.0.0.1:" + std::to_string(port_); }
    std::string url() const { return "http://" + authority(); }
    int connections() const { return connections_; }
    std::uint64_t bytes_down() const { return bytes_down_; }

    /// true: holds back all bytes to clients, until the next call with false. Any thread may call it.
    void hold_back(bool held) { held_ = held; }

    void pass_on_to(int port) {
        accepting_ = std::jthread([this, port] {
            while (!stop_) {
                if (!readable(listener_)) continue;
                const int client = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
                if (client < 0) continue;
                const Harm harm = harm_(++connections_);
                threads_.emplace_back([this, client, port, harm] { serve(client, port, harm); });
            }
        });
    }

private:
    static bool readable(int fd) {
        pollfd one{fd, POLLIN, 0};
        return ::poll(&one, 1, 20) > 0;
    }
    static bool write_all(int fd, const char* data, std::size_t size) {
        while (size > 0) {
            const ssize_t sent = ::send(fd, data, size, MSG_NOSIGNAL);
            if (sent <= 0) return false;
            data += sent;
            size -= static_cast<std::size_t>(sent);
        }
        return true;
    }

    /// One direction of a connection. pass() returns false at its end.
    struct Flow {
        int from, to;
        std::uint64_t cut, damage;
        std::atomic<std::uint64_t>* total = nullptr;  ///< counts bytes before the peer can read them
        std::uint64_t passed = 0;

        bool pass(std::array<char, 65'536>& buffer) {
            const ssize_t got = ::recv(from, buffer.data(), buffer.size(), 0);
            if (got <= 0) return false;
            auto count = static_cast<std::uint64_t>(got);
            const bool ends = count > cut - passed || count == cut - passed;
            if (ends) count = cut - passed;
            if (damage >= passed && damage < passed + count) buffer[static_cast<std::size_t>(damage - passed)] ^= 1;
            passed += count;
            if (total != nullptr) *total += count;
            return write_all(to, buffer.data(), static_cast<std::size_t>(count)) && !ends;
        }
    };

    void serve(int client, int port, const Harm& harm) {
        const int server = connected_socket(port);
        Flow up{client, server, harm.cut_up, harm.damage_up};
        Flow down{server, client, harm.cut_down, harm.damage_down, &bytes_down_};
        std::array<char, 65'536> buffer;
        bool open = server >= 0;
        while (open && !stop_) {
            const int not_held = held_ ? -1 : server;
            std::array<pollfd, 2> both{pollfd{client, POLLIN, 0}, pollfd{not_held, POLLIN, 0}};
            if (::poll(both.data(), both.size(), 20) <= 0) continue;
            if (both[0].revents != 0) open = up.pass(buffer);
            if (open && both[1].revents != 0) open = down.pass(buffer);
        }
        const linger at_once{1, 0};
        for (const int fd : {client, server}) {
            if (harm.reset) ::setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
            ::close(fd);
        }
    }

    const std::function<Harm(int)> harm_;
    const int listener_;
    int port_ = 0;
    std::atomic<bool> stop_{false}, held_{false};
    std::atomic<int> connections_{0};
    std::atomic<std::uint64_t> bytes_down_{0};
    std::jthread accepting_;
    std::vector<std::jthread> threads_;  // used by the accepting thread, then by the destructor
};

}  // namespace shared_tensor::test
