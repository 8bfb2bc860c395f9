#pragma once

#include <memory>

#include <shared_tensor/client_options.hpp>

#include "http/client.hpp"

namespace shared_tensor::client {

/// What sends a request and waits for its answer: a seam, so that faults can be scripted.
/// Thread safety: all methods from any thread.
class Transport {
public:
    virtual ~Transport() = default;
    /// Throws http::TransportError.
    virtual http::ClientResponse send(const http::ClientRequest& request) = 0;
    /// A warm buffer of at least `bytes`. Throws std::bad_alloc.
    virtual std::shared_ptr<PooledBuffer> take_buffer(std::size_t bytes) = 0;
    /// Ends all waits; later sends fail at once.
    virtual void shutdown() = 0;
    virtual http::Client::Stats stats() const = 0;
};

/// Connects when it is first used. Throws std::invalid_argument for a url that is none.
std::unique_ptr<Transport> http_transport(const ClientOptions& options);

}  // namespace shared_tensor::client
