#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "http/message.hpp"
#include "http/tls.hpp"

namespace shared_tensor::http {

/// Where a server is: "http://host:port", "https://host:port", or "unix:/path/to/socket" (also "http+unix:///path").
struct Endpoint {
    std::string host;  ///< empty for a Unix socket
    int port = 0;
    std::string unix_socket;
    bool tls = false;                               ///< https
    std::shared_ptr<const TlsClient> tls_client{};  ///< by which it is connected to; needed with https
    /// Throws std::invalid_argument that shows the accepted forms. The port may be left out: 2537.
    static Endpoint parse(std::string_view url);
    std::string url() const;
    /// What the Host header says: "127.0.0.1:2537", "[::1]:2537", "localhost" for a Unix socket.
    std::string authority() const;
};

struct ClientOptions {
    Endpoint endpoint;
    std::size_t max_connections = 8;               ///< at once; further callers wait for one
    std::chrono::milliseconds idle_limit{50'000};  ///< a pooled connection unused for longer is not used again
    std::chrono::milliseconds connect_timeout{5'000};
    std::size_t max_response_bytes = std::size_t{2} << 30;
};

/// The request was not sent, or not answered. `sent` tells whether the server may have seen it (then repeating it is
/// safe only for calls that may run twice).
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

/// Memory for the body of an answer, which must be as long as it.
struct BodyPlace {
    std::span<std::byte> memory;
    std::size_t filled = 0;  ///< of it, from its start; says after a TransportError how far the answer came
    int status = 0;          ///< of that answer; 0: none came, or it went elsewhere
    Headers headers{};       ///< likewise, known before its body
};

struct ClientRequest {
    std::string method = "POST";
    std::string path = "/jsonrpc";
    Headers headers;
    std::string content_type = "application/json";
    std::string text;
    std::vector<BodyPart> parts;  ///< instead of text
    BodyPlace* place = nullptr;   ///< where the body of a 2xx goes, if not into a buffer of its own; outlives send()
    std::chrono::steady_clock::time_point deadline = std::chrono::steady_clock::time_point::max();
    std::stop_token stop{};  ///< when it is requested, the request fails and its connection is closed
};

struct ClientResponse {
    int status = 0;
    Headers headers;
    std::shared_ptr<PooledBuffer> body;  ///< empty where it went to a place
    std::string_view text() const;
};

/// A pool of kept-alive connections to one server. Follows no redirects. Thread safety: all methods from any thread.
class Client {
public:
    explicit Client(ClientOptions options);
    ~Client();

    /// Blocks until the answer is whole, the deadline is past or `request.stop` is requested. Throws TransportError. A
    /// kept-alive connection that the server closed meanwhile is noticed and replaced before anything is sent.
    ClientResponse send(const ClientRequest& request);

    /// A warm buffer of at least `bytes`, as answers get them. Throws std::bad_alloc.
    std::shared_ptr<PooledBuffer> take_buffer(std::size_t bytes);

    /// Ends all waits with TransportError; later sends fail at once.
    void shutdown();

    struct Stats {
        std::uint64_t opened = 0, reused = 0, bytes_in = 0, bytes_out = 0;
    };
    Stats stats() const;

private:
    class Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace shared_tensor::http
