#pragma once

#include <functional>
#include <memory>
#include <string>
#include <variant>

#include <shared_tensor/client/options.hpp>

#include "base/concurrency/clock.hpp"
#include "base/system/host.hpp"
#include "client/local/tensor_ports.hpp"
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

/// The dependencies of a client. Tests replace them.
struct Dependencies {
    std::unique_ptr<RequestSender> sender;
    std::unique_ptr<TensorPorts> ports;
    const Clock* clock = &real_clock();
    /// Blocks until the given time. Empty: the core waits by itself, and shutdown() or the stop of the call ends the
    /// wait.
    std::function<void(SteadyTime)> sleep_until;
    /// Makes equal dependencies for a forked child. Empty: a forked child cannot use the client.
    std::function<Dependencies()> anew{};
};

/// The dependencies of a client outside tests. The sender connects when it is first used. Throws std::invalid_argument
/// for an invalid url, other invalid options, or an unusable TLS file.
Dependencies real_dependencies(const ClientOptions& options);

/// Returns SHARED_TENSOR_URL, or else the url of default_port() on this host. An empty variable counts as unset. Throws
/// as default_port() does.
std::string default_url(const Environment& environment);

/// Returns `url`, which a caller gave. Throws std::invalid_argument if it is empty: an empty url does not stand for the
/// server of the environment.
std::string checked_url(std::string url);

/// Adds the environment's url, token and certificate authorities if `options` has no url. Throws std::invalid_argument
/// for invalid options.
ClientOptions completed(ClientOptions options);

}  // namespace shared_tensor::client
