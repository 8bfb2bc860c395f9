#pragma once

#include <memory>

#include "http/client.hpp"
#include "http/wire.hpp"

namespace shared_tensor::http {

/// A connection to `endpoint`, made before `deadline`; with TLS where it says https. Throws TransportError of
/// kind connect or timeout, and what TlsClient::connect() throws. Blocks also while a name is looked up, which no
/// deadline ends.
std::unique_ptr<Wire> connect_to(const Endpoint& endpoint, std::chrono::steady_clock::time_point deadline);

}  // namespace shared_tensor::http
