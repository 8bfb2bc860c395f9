#pragma once

#include <memory>
#include <unordered_set>
#include <variant>

#include "http/client.hpp"
#include "http/client_connection.hpp"
#include "http/web_socket.hpp"
#include "util/guarded.hpp"

namespace shared_tensor::http {

/// Ends a handshake that goes on: it throws TransportError then. Thread-safe.
class Handshakes {
public:
    void shutdown();

private:
    friend class HandshakeInProgress;
    struct State {
        std::unordered_set<ClientConnection*> connections;
        bool shut = false;
    };
    Guarded<State> state_;
};

/// A WebSocket to `endpoint`, or the answer that refused it. Of `request` the path, the headers and the deadline count;
/// messages are received into `buffers`, which outlives run(). Blocks, but not after `handshakes` were shut down;
/// throws TransportError.
std::variant<std::shared_ptr<WebSocket>, ClientResponse> connect_web_socket(const Endpoint& endpoint,
                                                                            ClientRequest request,
                                                                            std::chrono::milliseconds connect_timeout,
                                                                            WebSocketLimits limits, BufferPool& buffers,
                                                                            Handshakes* handshakes = nullptr);

}  // namespace shared_tensor::http
