#pragma once

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "net/web_socket/web_socket_handshake.hpp"
#include "web_socket_peer.hpp"

namespace shared_tensor::test {

inline constexpr std::chrono::milliseconds kConnect{5'000};

inline net::Endpoint endpoint_of(int port) { return net::Endpoint::parse("http://127.0.0.1:" + std::to_string(port)); }

inline net::ClientRequest request_to(std::string path = "/socket") {
    net::ClientRequest request;
    request.path = std::move(path);
    request.deadline = patience();
    return request;
}

inline std::shared_ptr<net::WebSocket> connect_to(const net::Endpoint& endpoint, BufferPool& buffers) {
    auto connected = net::connect_web_socket(endpoint, request_to(), kConnect, {}, buffers);
    return std::get<std::shared_ptr<net::WebSocket>>(connected);
}

struct Received {
    bool binary;
    std::string text;
    std::thread::id by;  ///< the thread that was handed it
};

/// Our own client and the thread that runs it, which keeps what comes.
class OwnClient {
public:
    explicit OwnClient(const net::Endpoint& endpoint) : socket_(connect_to(endpoint, buffers_)) {
        thread_ = std::jthread([this] {
            end_ = socket_->run([this](const net::WebSocketMessage& message) {
                received_.with([&](auto& all) {
                    all.push_back({message.binary, std::string(message.text()), std::this_thread::get_id()});
                });
                received_.notify_all();
            });
        });
    }
    explicit OwnClient(int port) : OwnClient(endpoint_of(port)) {}
    OwnClient(const OwnClient&) = delete;
    OwnClient& operator=(const OwnClient&) = delete;
    ~OwnClient() { socket_->abort(); }

    net::WebSocket& socket() { return *socket_; }
    std::shared_ptr<net::WebSocket> shared_socket() { return socket_; }
    bool send(int kind, std::string bytes) { return socket_->send(kind == kBinary, {part_of(std::move(bytes))}); }
    /// Waits for so many messages; empty when they do not come.
    std::vector<Received> receive(std::size_t count) {
        auto all = received_.lock();
        const bool came = all.wait_until(patience(), [&](const auto& now) { return now.size() >= count; });
        return came ? *all : std::vector<Received>();
    }
    /// Waits for that one; one without text when it does not come.
    Received receive_one(std::size_t index) {
        auto all = received_.lock();
        const bool came = all.wait_until(patience(), [&](const auto& now) { return now.size() > index; });
        return came ? all->at(index) : Received{false, {}, {}};
    }
    std::size_t count() const {
        return received_.with([](const auto& all) { return all.size(); });
    }
    net::WebSocketEnd end() {
        thread_.join();
        return end_;
    }

private:
    BufferPool buffers_;
    std::shared_ptr<net::WebSocket> socket_;
    Guarded<std::vector<Received>> received_;
    net::WebSocketEnd end_;
    std::jthread thread_;
};

inline std::string key_of(const std::string& request) {
    const std::size_t at = request.find("Sec-WebSocket-Key: ");
    return at == std::string::npos ? "" : request.substr(at + 19, 24);
}

/// Takes our own client on a connection by hand.
inline RawClient accept_web_socket(RawServer& server, std::string_view behind = "") {
    auto connection = server.accept();
    const std::string request = RawServer::read_request(connection);
    connection.send(net::render_switching(key_of(request)).append(behind));
    return connection;
}

}  // namespace shared_tensor::test
