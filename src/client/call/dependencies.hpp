#pragma once

#include <functional>
#include <memory>
#include <string>

#include <shared_tensor/client/options.hpp>

#include "base/concurrency/clock.hpp"
#include "base/system/host.hpp"
#include "client/local/tensor_ports.hpp"
#include "net/client/client.hpp"

namespace shared_tensor::client {

/// The dependencies of a client. Tests replace them.
struct Dependencies {
    std::unique_ptr<net::Client> sender;
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
