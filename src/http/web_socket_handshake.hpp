#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "http/message.hpp"

// The opening handshake of a WebSocket (RFC 6455, section 4). No subprotocols, no extensions.

namespace shared_tensor::http {

/// Whether a request asks for the protocol "websocket", well-formed or not.
bool asks_for_web_socket(const RequestHead& head);
/// Why such a request cannot be followed; empty when it can.
std::string_view fault_of_handshake(const RequestHead& head);

/// What proves that the other side speaks the protocol: of the value of Sec-WebSocket-Key.
std::string accept_key(std::string_view key);
/// A random value of Sec-WebSocket-Key.
std::string fresh_handshake_key();

/// The answer that ends HTTP on the connection.
std::string render_switching(std::string_view key);

}  // namespace shared_tensor::http
