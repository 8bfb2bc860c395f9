#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <variant>

#include <shared_tensor/limits.hpp>

#include "http/message.hpp"
#include "http/tls.hpp"
#include "http/web_socket.hpp"
#include "util/budget.hpp"

namespace shared_tensor::http {

/// Where the transport listens, and its limits. What stands here beside HttpLimits is fixed for servers: tests set it.
struct ServerOptions : HttpLimits {
    std::string host = "127.0.0.1";          ///< empty: no TCP listener
    int port = 0;                            ///< 0: the kernel chooses
    std::string unix_socket;                 ///< path; empty: none. Created with mode 0600, removed at the end
    std::shared_ptr<const TlsServer> tls{};  ///< of the TCP listener; null: plain HTTP

    std::size_t max_header_line_bytes = 8 << 10;    ///< as nginx and Apache have it
    std::size_t max_headers = 100;                  ///< as Apache has it; clients and proxies send a few dozen
    std::size_t max_head_bytes = 64 << 10;          ///< request line and headers together
    std::size_t max_chunks = std::size_t{1} << 20;  ///< of one chunked body: 2 GiB come in chunks of 2 KiB or more
    /// Of clients that Handler::trusts() not, until a request of theirs is admitted; 0: a quarter of max_connections,
    /// which leaves most places to those who may call.
    std::size_t max_untrusted_connections = 0;
    std::size_t reserved_threads = 4;  ///< started at once and kept for short requests, whatever else has to wait
    /// A thread waits so long (rounded up to the kernel's tick) for the next request of the connection it keeps to; 0:
    /// not at all.
    std::chrono::microseconds spin{50};
    std::size_t max_spinning = 64;  ///< threads that may wait like this; further connections park at once
};

/// How the body of an admitted request is to be read.
struct BodyPlan {
    std::size_t max_bytes;
    bool binary = false;                           ///< body_timeout is the longest time between two reads
    std::shared_ptr<Budget> client_budget{};       ///< the client's own share of what may be in flight; null: all of it
    std::shared_ptr<Budget> client_connections{};  ///< counts the client's connections, each as 1; null: nothing
    bool takes_long = false;                       ///< handle() may keep its thread: 503 where no thread can be spared
    std::shared_ptr<const Admission> admission{};  ///< handle() gets it with the request
};

/// One request on its way, as the handler sees it. Lives until the handler returned.
class Exchange {
public:
    virtual ~Exchange() = default;
    /// Calls `gone` once, from the poller's thread, when the peer closes or resets the connection before the answer
    /// is complete; never after handle() returned. Costs two system calls: for requests that wait. `gone` must not
    /// block.
    virtual void on_client_gone(std::function<void()> gone) = 0;

    /// To be asked before handle() waits or works for long: false when no thread can be spared for that, and the
    /// request has to be answered at once (busy). Does not block.
    virtual bool may_take_long() { return true; }

    /// To be called before handle() waits for something, even for a moment: connections that its thread would serve
    /// next are left to other threads. Does not block.
    virtual void about_to_wait() {}

    /// Begins the answer, whose body comes by write(), as it is made: of `head` the status, the headers and the content
    /// type count. What handle() returns is left aside then. False where that cannot be, or the client is gone.
    virtual bool begin(const Response& head) {
        static_cast<void>(head);
        return false;
    }
    /// The next piece. Blocks until the client's system has taken it; false when it is gone.
    virtual bool write(std::span<const BodyPart> parts) {
        static_cast<void>(parts);
        return false;
    }
};

/// How a WebSocket is to be served.
struct WebSocketPlan {
    WebSocketLimits limits;
    /// Runs it to its end, on a connection thread. Whoever keeps the socket beyond that can send no more.
    std::function<void(const std::shared_ptr<WebSocket>& socket)> serve;
    std::shared_ptr<Budget> client_budget{};       ///< as of BodyPlan
    std::shared_ptr<Budget> client_connections{};  ///< likewise
};

/// What the transport asks of the server above it. Called from connection threads, many at once; must not throw
/// (what is thrown becomes a bare 500).
class Handler {
public:
    virtual ~Handler() = default;
    /// The headers are complete, nothing of the body is read: how to read it, or the answer that refuses it.
    virtual std::variant<BodyPlan, Response> admit(const RequestHead& head) = 0;
    virtual Response handle(Request request, Exchange& exchange) = 0;
    /// A request whose headers are those of a WebSocket's handshake, instead of admit(); nothing: it is taken as any
    /// other.
    virtual std::optional<WebSocketPlan> upgrade(const RequestHead& head) {
        static_cast<void>(head);
        return std::nullopt;
    }
    /// Of a client that was accepted just now: false where only its requests can show that it may call. Must not block.
    virtual bool trusts(const Peer& peer) {
        static_cast<void>(peer);
        return true;
    }
    /// Whether a request is about the server's health: answered even where there are too many connections.
    virtual bool is_about_health(const RequestHead& head) {
        static_cast<void>(head);
        return false;
    }
    /// The answer to a fault of transport (400, 408, 411, 413, 414, 417, 431, 501, 503, 505), so that it has the
    /// protocol's form. Those of 408 (headers) and 503 (connections) are asked for once, in start().
    virtual Response fault(int status, std::string_view reason) = 0;
    /// The same of a request whose head was good.
    virtual Response fault_behind(const RequestHead& head, int status, std::string_view reason) {
        static_cast<void>(head);
        return fault(status, reason);
    }
};

struct ServerStats {
    std::uint64_t accepted = 0, refused = 0, requests = 0, bytes_in = 0, bytes_out = 0;
    std::size_t connections = 0, parked = 0, threads = 0;
};

/// The HTTP/1.1 transport.
///
/// An idle kept-alive connection holds no thread: it is parked in epoll, from which the threads of an elastic pool take
/// those that are readable. Every request has a deadline for its headers and for the whole.
class Server {
public:
    /// `handler` must outlive the server.
    Server(const ServerOptions& options, Handler& handler);
    ~Server();  ///< stop(0)

    /// Binds and starts to accept. Throws std::system_error that names the address ("address already in use" ...).
    void start();
    int port() const;  ///< the bound TCP port, 0 without one

    /// For connections that are accepted from now on. Only for a server that has TLS already.
    void use_tls(std::shared_ptr<const TlsServer> tls);

    /// No new connection is accepted; idle ones are closed, busy ones after their current answer ("Connection: close").
    void drain();
    /// drain(), then waits at most `grace` for the requests in flight, then cuts the connections and waits for their
    /// handlers: a second at most. False if one has not returned by then; the destructor waits for it.
    bool stop(std::chrono::milliseconds grace);

    ServerStats stats() const;
    BufferPool& buffers();  ///< where request bodies are read into
    /// So many bytes more of what requests hold, of all clients and of one (null: of nobody), as long as what is
    /// returned lives; null when there are not so many left. Any thread.
    std::shared_ptr<const void> hold_bytes(Budget* client, std::size_t bytes);

private:
    class Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace shared_tensor::http
