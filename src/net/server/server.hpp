#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <variant>
#include <vector>

#include <shared_tensor/limits.hpp>

#include "base/concurrency/budget.hpp"
#include "net/message/head_parser.hpp"
#include "net/message/message.hpp"
#include "net/stream/tls.hpp"
#include "net/web_socket/web_socket.hpp"

namespace shared_tensor::net {

/// Where the server listens, and its limits. Users set only HttpLimits; the other limits here are for tests.
struct ServerOptions : HttpLimits {
    std::string host = "127.0.0.1";          ///< empty: no TCP listener
    int port = 0;                            ///< 0: the kernel chooses
    std::string unix_socket;                 ///< path; empty: none. Created with mode 0600, removed at the end
    std::shared_ptr<const TlsServer> tls{};  ///< of the TCP listener; null: plain HTTP
    /// Listening sockets that another process opened, in place of the three above. start() takes their ownership.
    std::vector<int> sockets{};

    HeadLimits head{};
    std::size_t max_chunks = std::size_t{1} << 20;  ///< of one chunked body: 2 GiB fit into chunks of 2 KiB
    /// Connections that Handler::trusts() rejected and that had no request admitted yet. 0: a quarter of
    /// max_connections.
    std::size_t max_untrusted_connections = 0;
    std::size_t reserved_threads = 4;  ///< started at once and kept for short requests
    /// How long a thread waits for the next request of its connection, rounded up to the kernel's tick. 0: not at all.
    std::chrono::microseconds spin{50};
};

/// How to read the body of an admitted request.
struct BodyPlan {
    std::size_t max_bytes;
    bool binary = false;                           ///< body_timeout is the longest time between two reads
    std::shared_ptr<Budget> client_budget{};       ///< bytes in flight of this client; null: no bound of its own
    std::shared_ptr<Budget> client_connections{};  ///< counts each connection of this client as 1; null: no bound
    bool takes_long = false;                       ///< handle() may keep its thread: 503 if no thread can be spared
    std::shared_ptr<const Admission> admission{};  ///< goes to handle() with the request
    Headers response_headers{};                    ///< added to the answer of handle()
};

/// One request while the handler works on it. Lives until handle() returns.
class ResponseStream {
public:
    virtual ~ResponseStream() = default;
    /// Returns a token that another thread stops if the peer closes or resets the connection. The first call costs two
    /// system calls. Callbacks must not block or throw. Destroy them before handle() returns.
    virtual std::stop_token client_gone() = 0;

    /// Call this before handle() waits or works for long. False: no thread can be spared, so the request has to be
    /// answered at once (busy). Does not block.
    virtual bool may_take_long() { return true; }

    /// Call this before handle() waits, even for a moment. Other threads then serve the connections that this thread
    /// would serve next. Does not block. Another thread may call it, as answer_now().
    virtual void about_to_wait() {}

    /// Starts an answer whose body follows by write(). Uses status, headers and content type of `head`. The body of
    /// the response that handle() returns is ignored then. False if that is not possible, or the client is gone.
    virtual bool begin(const Response& /*head*/) { return false; }
    /// Writes the next piece of the body. Blocks until the kernel has taken it. False if the client is gone.
    virtual bool write(std::span<const BodyPart> /*parts*/) { return false; }

    /// Whether answer_now() works.
    virtual bool can_answer_now() const { return false; }
    /// Answers the request while handle() still works on it: call it once, on another thread, while the thread of
    /// handle() uses nothing of this object, and let handle() return after it. Does not wait for a client that reads
    /// slowly. The connection closes when handle() returns; what handle() returns is dropped.
    virtual void answer_now(const Response& /*response*/) {}
};

/// How to serve a WebSocket.
struct WebSocketPlan {
    WebSocketLimits limits;
    /// Runs the socket to its end, on a connection thread. Later sends on a kept copy of the socket fail.
    std::function<void(const std::shared_ptr<WebSocket>& socket)> serve;
    std::shared_ptr<Budget> client_budget{};       ///< as in BodyPlan
    std::shared_ptr<Budget> client_connections{};  ///< as in BodyPlan
    std::shared_ptr<const Admission> admission{};  ///< for Handler::served()
    std::string protocol{};                        ///< the subprotocol of the answer; empty: none
};

/// Decides about requests and answers them. Called from many connection threads at once. Must not throw: an exception
/// becomes a bare 500.
class Handler {
public:
    virtual ~Handler() = default;
    using Verdict = std::variant<BodyPlan, WebSocketPlan, Response>;
    /// The headers are complete, the body is unread. Returns how to read the body, how to serve the WebSocket, or the
    /// answer that rejects the request. `is_handshake`: the request is a correct handshake of a WebSocket. Only then
    /// may the result be a WebSocketPlan.
    virtual Verdict admit(const RequestHead& head, bool is_handshake) = 0;
    virtual Response handle(Request request, ResponseStream& response_stream) = 0;
    /// Whether a client that has just connected may be trusted before it sends a request. Must not block.
    virtual bool trusts(const Peer& /*peer*/) { return true; }
    /// Whether a request asks about the server's health. It is answered even if there are too many connections.
    virtual bool is_about_health(const RequestHead& /*head*/) { return false; }
    /// The answer to a request that the transport rejects (400, 408, 411, 413, 414, 417, 431, 501, 503, 505), in the
    /// protocol's form. `head` is null if the request has no correct head. start() asks once for the answers that are
    /// sent without a request.
    virtual Response rejection(int status, std::string_view reason, const RequestHead* head) = 0;
    /// The name of a request in logs and in its answer (X-Request-Id). handle() and admit() find it in the request's
    /// headers. `head` is null if the request has no correct head. Empty: it has no name. Must not block.
    virtual std::string request_id(const RequestHead* /*head*/) { return {}; }
    /// Whether served() wants the requests.
    virtual bool wants_served() const { return false; }
    /// The answer of a request was sent, or its WebSocket has ended. Must not block.
    virtual void served(const ServedRequest& /*request*/) noexcept {}
    /// The transport rejected a request with this status. Must not block.
    virtual void rejected(int /*status*/) {}
};

struct ServerStats {
    std::uint64_t accepted = 0, rejected = 0, requests = 0, bytes_in = 0, bytes_out = 0;
    std::size_t connections = 0, parked = 0, threads = 0;
};

/// An HTTP/1.1 server. An idle kept-alive connection waits in epoll and holds no thread. Threads of an elastic pool
/// serve the readable connections. Every request has a deadline for its headers and one for the whole.
class Server {
public:
    /// `handler` must outlive the server.
    Server(const ServerOptions& options, Handler& handler);
    ~Server();  ///< stop(0)

    /// Binds and starts to accept. Throws std::system_error that names the address ("address already in use" ...).
    void start();
    int port() const;  ///< the bound TCP port, 0 without one

    /// Replaces the certificates for later connections. Only for a server that has TLS already.
    void use_tls(std::shared_ptr<const TlsServer> tls);

    /// Accepts no more connections, closes idle ones, and busy ones after their current answer ("Connection: close").
    void drain();
    /// drain(), then waits for the requests in flight, at most `grace`. Then cuts the connections and waits for their
    /// handlers, at most a second. False if a handler has not returned by then; the destructor waits for it.
    bool stop(std::chrono::milliseconds grace);

    ServerStats stats() const;
    BufferPool& buffers();  ///< the pool of the buffers for request bodies
    /// Reserves `bytes` of the global budget and of `client` (null: only of the global one) while the result lives.
    /// Null if either budget is exhausted. Any thread.
    std::shared_ptr<const void> hold_bytes(Budget* client, std::size_t bytes);

private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace shared_tensor::net
