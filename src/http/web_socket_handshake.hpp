#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <variant>

#include "http/client.hpp"
#include "http/message.hpp"
#include "http/web_socket.hpp"

// The opening handshake of a WebSocket (RFC 6455, section 4), both sides. No subprotocols, no extensions.

namespace shared_tensor::http {

/// Whether a request asks for the protocol "websocket", well-formed or not.
bool asks_for_web_socket(const RequestHead& head);
/// Why such a request cannot be followed; empty when it can.
std::string_view fault_of_handshake(const RequestHead& head);

/// The proof that the server speaks the protocol: it is made of the value of Sec-WebSocket-Key.
std::string accept_key(std::string_view key);
/// A random value of Sec-WebSocket-Key.
std::string fresh_handshake_key();

/// The answer that ends HTTP on the connection.
std::string render_switching(std::string_view key);

/// A WebSocket to `endpoint`, or the answer that rejected it. Of `request` the path, the headers, the deadline and the
/// stop count; messages are received into `buffers`, which outlives run(). Blocks as Client::send() does; throws
/// TransportError.
std::variant<std::shared_ptr<WebSocket>, ClientResponse> connect_web_socket(const Endpoint& endpoint,
                                                                            ClientRequest request,
                                                                            std::chrono::milliseconds connect_timeout,
                                                                            WebSocketLimits limits,
                                                                            BufferPool& buffers);

}  // namespace shared_tensor::http
