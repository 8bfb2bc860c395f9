#pragma once

#include <memory>
#include <variant>

#include "http/client.hpp"
#include "http/web_socket.hpp"

namespace shared_tensor::http {

/// A WebSocket to `endpoint`, or the answer that refused it. Of `request` the path, the headers and the deadline count;
/// messages are received into `buffers`, which outlives run(). Blocks; throws TransportError.
std::variant<std::shared_ptr<WebSocket>, ClientResponse> connect_web_socket(const Endpoint& endpoint,
                                                                            ClientRequest request,
                                                                            std::chrono::milliseconds connect_timeout,
                                                                            WebSocketLimits limits,
                                                                            BufferPool& buffers);

}  // namespace shared_tensor::http
