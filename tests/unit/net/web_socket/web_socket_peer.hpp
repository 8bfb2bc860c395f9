#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/log/log.hpp"
#include "unit/net/raw_client.hpp"
#include "unit/net/test_server.hpp"

namespace shared_tensor::test {

inline constexpr int kContinuation = 0, kText = 1, kBinary = 2, kClose = 8, kPing = 9, kPong = 10;

/// A frame as this second, simpler reader and writer of RFC 6455 understands it; it shares no code with the project.
struct RawFrame {
    int opcode = 0;  ///< -1: the connection ended before a frame was whole
    std::string payload{};
    bool last = true;
    bool masked = true;
    int reserved = 0;  ///< the three bits of it

    std::string bytes() const;
    /// Of a close frame; 0 without one.
    int code() const;
};

/// Any head, also one that lies about its payload.
std::string raw_head(int first_byte, std::uint64_t length, bool masked = true);
std::string raw_close(int code, std::string_view reason = "");
RawFrame read_raw_frame(RawClient& from);

/// The request that asks for a WebSocket, with RFC 6455's own key.
std::string web_socket_request(std::string_view path = "/socket");
/// A client made of plain socket calls, after its handshake.
class RawWebSocket : public RawClient {
public:
    explicit RawWebSocket(int port);
    bool send_frame(const RawFrame& frame) { return send(frame.bytes()); }
    RawFrame read_frame() { return read_raw_frame(*this); }
    /// What comes, joined of its fragments; control frames are passed over.
    RawFrame read_message();
    /// The code of the close frame behind whatever comes before it; 0 when the connection ended without one.
    int read_close_code();
};

/// A part that keeps its own bytes.
net::BodyPart part_of(std::string bytes);
std::string random_bytes(std::size_t size);

/// Nothing is logged meanwhile. Before the server, whose threads log until it ended.
struct QuietLog {
    QuietLog() { log::set_level(log::Level::off); }
    QuietLog(const QuietLog&) = delete;
    QuietLog& operator=(const QuietLog&) = delete;
    ~QuietLog() { log::set_level(log::Level::info); }
};

/// The real server, whose WebSockets say every message back, unless a test says otherwise.
class WebSocketServer {
public:
    explicit WebSocketServer(net::WebSocketLimits limits = {}, net::ServerOptions options = {});
    WebSocketServer(const WebSocketServer&) = delete;
    WebSocketServer& operator=(const WebSocketServer&) = delete;
    ~WebSocketServer() { server().stop(std::chrono::milliseconds(0)); }  // before what its threads use
    /// Set before the first connection.
    std::function<void(net::WebSocket&, net::WebSocketMessage)> on_message;

    int port() const { return transport_.port(); }
    net::Server& server() { return transport_.server; }
    EchoHandler& handler() { return transport_.handler; }
    /// Waits for the first one.
    std::shared_ptr<net::WebSocket> socket();
    /// Waits for the first one that ended.
    net::WebSocketEnd end();
    std::size_t messages() const { return messages_; }

private:
    struct Seen {
        std::vector<std::shared_ptr<net::WebSocket>> sockets;
        std::vector<net::WebSocketEnd> ends;
    };
    void serve(const std::shared_ptr<net::WebSocket>& socket);

    Guarded<Seen> seen_;
    std::atomic<std::size_t> messages_{0};
    TestServer transport_;
};

}  // namespace shared_tensor::test
