#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <variant>

#include "net/client/client.hpp"
#include "net/message/message.hpp"
#include "net/web_socket/web_socket.hpp"

// The opening handshake of a WebSocket (RFC 6455, section 4), both sides. No extensions. Our clients ask for no
// subprotocol.

namespace shared_tensor::net {

/// Whether a request asks for the protocol "websocket". The rest of the handshake may be wrong.
bool asks_for_web_socket(const RequestHead& head);
/// What is wrong with a handshake; empty if it is correct.
std::string_view rejection_of_handshake(const RequestHead& head);

/// The value of Sec-WebSocket-Accept for a Sec-WebSocket-Key.
std::string accept_key(std::string_view key);
/// A random value of Sec-WebSocket-Key.
std::string fresh_handshake_key();

/// The answer 101. The connection carries WebSocket frames after it. `request_id`: its X-Request-Id; `protocol`: the
/// subprotocol, one that the client offers. Empty: none.
std::string render_switching(std::string_view key, std::string_view request_id = {}, std::string_view protocol = {});

/// Opens a WebSocket to `endpoint`. Returns the server's answer if it rejects the socket. Uses path, headers,
/// deadline and stop of `request`. Messages are received into `buffers`, which must outlive run(). Blocks as
/// Client::send() does. Throws TransportError.
std::variant<std::shared_ptr<WebSocket>, ClientResponse> connect_web_socket(const Endpoint& endpoint,
                                                                            ClientRequest request,
                                                                            std::chrono::milliseconds connect_timeout,
                                                                            WebSocketLimits limits,
                                                                            BufferPool& buffers);

}  // namespace shared_tensor::net
