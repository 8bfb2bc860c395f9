#pragma once

#include <memory>
#include <utility>
#include <variant>

#include <shared_tensor/client_options.hpp>

#include "http/client.hpp"
#include "http/web_socket.hpp"

namespace shared_tensor::client {

/// What sends a request and waits for its answer: a seam, so that faults can be scripted.
/// Thread safety: all methods from any thread.
class Transport {
public:
    virtual ~Transport() = default;
    /// Throws http::TransportError.
    virtual http::ClientResponse send(const http::ClientRequest& request) = 0;
    /// A WebSocket to the server, or the answer that refused it: of `request` as http::connect_web_socket. Throws
    /// http::TransportError.
    virtual std::variant<std::shared_ptr<http::WebSocket>, http::ClientResponse> connect_web_socket(
        http::ClientRequest request) {
        static_cast<void>(request);
        throw http::TransportError(http::TransportError::Kind::connect, false, "there are no WebSockets here");
    }
    /// A warm buffer of at least `bytes`. Throws std::bad_alloc.
    virtual std::shared_ptr<PooledBuffer> take_buffer(std::size_t bytes) = 0;
    /// Ends all waits; later sends fail at once.
    virtual void shutdown() = 0;
    virtual http::Client::Stats stats() const = 0;
};

/// Reads the files of TLS. Throws std::invalid_argument for a url that is none, or a file that cannot be used.
http::ClientOptions http_options(const ClientOptions& options);
/// Connects when it is first used.
std::unique_ptr<Transport> http_transport(http::ClientOptions options);

}  // namespace shared_tensor::client
