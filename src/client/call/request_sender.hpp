#pragma once

#include <memory>
#include <utility>
#include <variant>

#include <shared_tensor/client_options.hpp>

#include "net/client/client.hpp"
#include "net/web_socket/web_socket.hpp"

namespace shared_tensor::client {

/// Sends requests to the server and waits for the answers. An interface, so that tests can script faults.
/// Thread safety: all methods from any thread.
class RequestSender {
public:
    virtual ~RequestSender() = default;
    /// Throws net::TransportError.
    virtual net::ClientResponse send(const net::ClientRequest& request) = 0;
    /// Opens a WebSocket to the server, or returns the answer that rejected it. Uses the same members of `request` as
    /// net::connect_web_socket. Blocks. Throws net::TransportError.
    virtual std::variant<std::shared_ptr<net::WebSocket>, net::ClientResponse> connect_web_socket(
        net::ClientRequest request) {
        static_cast<void>(request);
        throw net::TransportError(net::TransportError::Kind::connect, false, "there are no WebSockets here");
    }
    /// A warm buffer of at least `bytes`. Throws std::bad_alloc.
    virtual std::shared_ptr<PooledBuffer> take_buffer(std::size_t bytes) = 0;
    /// Ends all waits; later sends fail at once.
    virtual void shutdown() = 0;
    virtual net::Client::Stats stats() const = 0;
};

/// The HTTP options for a client's options. Reads the TLS files. Throws std::invalid_argument for an invalid url or an
/// unusable file.
net::ClientOptions http_options(const ClientOptions& options);
/// The real transport. It connects when it is first used.
std::unique_ptr<RequestSender> http_request_sender(net::ClientOptions options);

}  // namespace shared_tensor::client
