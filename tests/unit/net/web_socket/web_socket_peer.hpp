#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/log/log.hpp"
#include "net/web_socket/web_socket_handshake.hpp"
#include "unit/net/test_server.hpp"

namespace shared_tensor::test {

inline constexpr int kContinuation = 0, kText = 1, kBinary = 2, kClose = 8, kPing = 9, kPong = 10;

/// A frame as this second, simpler reader and writer of RFC 6455 understands it; it shares no code with the project.
struct RawFrame {
    int opcode = 0;  ///< -1: the connection ended before a frame was whole
    std::string payload{};
    bool last = true;
    bool masked = true;  ///< as those of a client are
    int reserved = 0;    ///< the three bits of it

    std::string bytes() const;
    /// Of a close frame; 0 without one.
    int code() const;
};

/// Any head, also one that lies about its payload. `length_bytes`: 0 for the shortest form, else 2 or 8.
std::string raw_head(int first_byte, std::uint64_t length, bool masked = true, std::size_t length_bytes = 0);
RawFrame raw_close(int code, std::string_view reason = "");
RawFrame read_raw_frame(RawClient& from);
/// What comes, joined of its fragments; control frames are passed over.
RawFrame read_raw_message(RawClient& from);
/// The code of the close frame behind whatever comes before it; 0 when the connection ended without one.
int read_close_code(RawClient& from);

/// The request that asks for a WebSocket, with RFC 6455's own key.
std::string web_socket_request(std::string_view path = "/socket");
/// The answer to a request, which comes on `connection`.
std::string web_socket_answer(RawClient& connection);

/// A client made of plain socket calls, after its handshake.
class RawWebSocket : public RawClient {
public:
    explicit RawWebSocket(int port);
    bool send_frame(const RawFrame& frame) { return send(frame.bytes()); }
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

/// No limit can be the one that a test did not mean.
inline net::WebSocketLimits patient_limits() {
    net::WebSocketLimits limits;
    limits.idle = limits.stall = std::chrono::milliseconds(600'000);
    limits.min_bytes_per_second = 0;
    return limits;
}

/// Runs WebSockets of ours, and keeps what becomes of them.
class WebSocketRunner {
public:
    using OnMessage = std::function<void(net::WebSocket&, net::WebSocketMessage)>;
    /// Says every message back, unless a test says otherwise. Set before the first connection.
    OnMessage on_message;

    explicit WebSocketRunner(OnMessage act = nullptr);
    void run(const std::shared_ptr<net::WebSocket>& socket);
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
    Guarded<Seen> seen_;
    std::atomic<std::size_t> messages_{0};
};

/// The real server and its WebSockets.
class WebSocketServer : public WebSocketRunner {
public:
    explicit WebSocketServer(net::WebSocketLimits limits = {}, net::ServerOptions options = {}, Over over = Over::tcp,
                             OnMessage act = nullptr);
    ~WebSocketServer() { server().stop(std::chrono::milliseconds(0)); }  // before what its threads use

    int port() const { return transport_.port(); }
    net::Server& server() { return transport_.server; }
    EchoHandler& handler() { return transport_.handler; }
    net::Endpoint endpoint() const { return transport_.options_of_client().endpoint; }
    const EitherServer& transport() const { return transport_; }

private:
    EitherServer transport_;
};

/// Which WebSocket of ours a test is about.
struct Ours {
    bool is_server, has_tls;
};
/// The four of them, one after the other.
Ours any_of_ours();

/// A WebSocket of ours, run by its server or a thread of ours, and its peer by hand, after their handshake.
class Duo {
public:
    /// `behind`: what the peer sends in one packet with its handshake.
    explicit Duo(Ours ours, net::WebSocketLimits limits = {}, WebSocketRunner::OnMessage act = nullptr,
                 const std::vector<std::string>& behind = {});
    ~Duo();

    WebSocketRunner& runner() { return server_ ? *server_ : client_; }
    net::WebSocket& socket() { return *runner().socket(); }
    net::WebSocketEnd end() { return runner().end(); }
    RawClient& peer() { return *peer_; }
    /// Masked as those of this peer are.
    std::string bytes_of(RawFrame frame) const;
    bool send(const RawFrame& frame) { return peer_->send(bytes_of(frame)); }
    RawFrame read_frame() { return read_raw_frame(*peer_); }
    RawFrame read_message() { return read_raw_message(*peer_); }
    int read_close_code() { return test::read_close_code(*peer_); }
    /// Waits until the peer sees the end, and nothing before it.
    bool is_over() { return has_tls_ ? peer_->read_to_end().empty() : peer_->is_closed(); }

private:
    const bool has_tls_;
    std::unique_ptr<WebSocketServer> server_;  // or:
    WebSocketRunner client_;
    BufferPool buffers_;
    RawServer listener_;
    std::jthread thread_;
    std::unique_ptr<RawClient> peer_;
};

inline net::ClientRequest request_to(std::string path = "/socket") {
    net::ClientRequest request;
    request.path = std::move(path);
    request.deadline = patience();
    return request;
}

inline constexpr std::chrono::milliseconds kConnect{5'000};

inline std::shared_ptr<net::WebSocket> connect_to(const net::Endpoint& endpoint, BufferPool& buffers,
                                                  net::WebSocketLimits limits = {}) {
    auto connected = net::connect_web_socket(endpoint, request_to(), kConnect, limits, buffers);
    return std::get<std::shared_ptr<net::WebSocket>>(connected);
}

struct Received {
    bool binary;
    std::string text;
    std::thread::id by;  ///< the thread that was handed it
};

/// Our own client and the thread that runs it, which keeps what comes.
class OwnClient : public WebSocketRunner {
public:
    explicit OwnClient(const net::Endpoint& endpoint);
    ~OwnClient() { socket()->abort(); }

    bool send(int kind, std::string bytes) { return socket()->send(kind == kBinary, {part_of(std::move(bytes))}); }
    /// Waits for so many messages; empty when they do not come.
    std::vector<Received> receive(std::size_t count);
    /// Waits for that one; one without text when it does not come.
    Received receive_one(std::size_t index);
    std::size_t count() const {
        return received_.with([](const auto& all) { return all.size(); });
    }

private:
    BufferPool buffers_;
    Guarded<std::vector<Received>> received_;
    std::jthread thread_;
};

}  // namespace shared_tensor::test
