#pragma once

#include <memory>
#include <stop_token>

#include "http/client.hpp"
#include "http/wire.hpp"

namespace shared_tensor::http {

/// A connection to `endpoint`, made before `deadline`; with TLS where it says https. Throws TransportError of
/// kind connect or timeout, and what TlsClient::connect() throws; soon after `stop` was requested one of these,
/// whichever it is. Blocks also while a name is looked up, which neither deadline nor stop ends.
std::unique_ptr<Wire> connect_to(const Endpoint& endpoint, std::chrono::steady_clock::time_point deadline,
                                 const std::stop_token& stop);

}  // namespace shared_tensor::http
