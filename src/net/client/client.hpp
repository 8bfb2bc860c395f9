#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/concurrency/guarded.hpp"
#include "net/message/message.hpp"
#include "net/stream/tls.hpp"

namespace shared_tensor::net {

class ClientConnection;
class WebSocket;

/// The address of a server: "http://host:port", "https://host:port", or "unix:/path/to/socket" (also
/// "http+unix:///path").
struct Endpoint {
    std::string host;  ///< empty for a Unix socket
    int port = 0;
    std::string unix_socket;
    bool tls = false;                               ///< https
    std::shared_ptr<const TlsClient> tls_client{};  ///< needed for https
    /// Throws std::invalid_argument that shows the accepted forms. The default port is 2537.
    static Endpoint parse(std::string_view url);
    std::string url() const;
    /// The value of the Host header: "127.0.0.1:2537", "[::1]:2537", "localhost" for a Unix socket.
    std::string authority() const;
};

struct ClientOptions {
    Endpoint endpoint;
    std::size_t max_connections = 8;               ///< at once; further callers wait for one
    std::chrono::milliseconds idle_limit{50'000};  ///< a connection unused for longer is not used again
    std::chrono::milliseconds connect_timeout{5'000};
    std::size_t max_response_bytes = std::size_t{2} << 30;
};

/// The request was not sent, or not answered. If `sent` is true, the server may have seen it; then only a call that
/// may run twice can be repeated.
class TransportError : public std::runtime_error {
public:
    enum class Kind {
        connect,
        timeout,
        broken,
        too_large,
        protocol,
        untrusted,  ///< the server's certificate
        cancelled,  ///< ClientRequest::stop was requested
    };
    TransportError(Kind what_kind, bool was_sent, const std::string& text)
        : std::runtime_error(text), kind(what_kind), sent(was_sent) {}
    Kind kind;
    bool sent;
};

/// Memory for the body of an answer, exactly as long as the body.
struct BodyPlace {
    std::span<std::byte> memory;
    std::size_t filled = 0;  ///< bytes that arrived, also after a TransportError
    int status = 0;          ///< of the answer that goes here; 0: none came, or it went elsewhere
    Headers headers{};       ///< of that answer, known before its body
};

struct ClientRequest {
    std::string method = "POST";
    std::string path = "/jsonrpc";
    Headers headers;
    std::string content_type = "application/json";
    std::string text;
    std::vector<BodyPart> parts;  ///< instead of text
    BodyPlace* place = nullptr;   ///< for the body of a 2xx, instead of a buffer of its own; outlives send()
    std::chrono::steady_clock::time_point deadline = std::chrono::steady_clock::time_point::max();
    std::stop_token stop{};  ///< when it is requested, the request fails and its connection is closed
    std::optional<std::size_t> max_response_bytes{};  ///< instead of ClientOptions::max_response_bytes
};

struct ClientResponse {
    int status = 0;
    Headers headers;
    std::shared_ptr<PooledBuffer> body;  ///< empty if it went to a place
    std::string_view text() const;
};

/// A pool of kept-alive connections to one server. Follows no redirects. Tests override the virtual methods to script
/// faults. Thread safety: all methods from any thread.
class Client {
public:
    /// Throws std::bad_alloc.
    explicit Client(ClientOptions options) : options_(std::move(options)) {
        pool_.with([this](Pool& pool) { pool.idle.reserve(options_.max_connections); });  // later pushes need no memory
    }
    virtual ~Client();

    /// Blocks until the answer is complete, the deadline is over or `request.stop` is requested. Throws TransportError.
    /// Notices a kept-alive connection that the server has closed, and replaces it before it sends anything.
    virtual ClientResponse send(const ClientRequest& request);

    /// Opens a WebSocket, on a connection of its own, or returns the answer that rejected it. Uses path, headers,
    /// deadline and stop of `request`. Blocks and throws as send() does.
    virtual std::variant<std::shared_ptr<WebSocket>, ClientResponse> connect_web_socket(ClientRequest request);

    /// A buffer of at least `bytes` from the pool that holds answers. Throws std::bad_alloc.
    std::shared_ptr<PooledBuffer> take_buffer(std::size_t bytes) { return buffers_.take(bytes); }

    /// Ends all waits with TransportError. Later sends fail at once. WebSockets stay open.
    virtual void shutdown();

    struct Stats {
        std::uint64_t opened = 0, reused = 0, bytes_in = 0, bytes_out = 0;
    };
    virtual Stats stats() const;

private:
    using Time = std::chrono::steady_clock::time_point;
    using Connection = std::shared_ptr<ClientConnection>;  // never shared: the class is not complete here
    struct Idle {
        Connection connection;
        Time since;
    };
    struct Pool {
        std::vector<Idle> idle;  // the connection used last is used next
        std::size_t taken = 0;   // places of connections that are busy or being opened
    };

    void take_place(const ClientRequest& request, const std::stop_token& stop);
    Connection take_idle();
    Connection open(Time deadline, const std::stop_token& stop);
    ClientResponse exchange(ClientConnection& connection, const ClientRequest& request, const std::stop_token& stop);
    void give_back(Connection connection);
    void check_stops(const ClientRequest& request, bool sent) const;

    const ClientOptions options_;
    BufferPool buffers_;  // for answers and messages of WebSockets
    Guarded<Pool> pool_;
    std::stop_source stop_;  // of all requests: the client was shut down
    std::atomic<std::uint64_t> opened_{0}, reused_{0}, bytes_in_{0}, bytes_out_{0};
};

}  // namespace shared_tensor::net
