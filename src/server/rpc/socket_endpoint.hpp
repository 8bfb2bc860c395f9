#pragma once

#include <memory>
#include <optional>
#include <unordered_set>

#include "server/rpc/rpc_socket.hpp"

namespace shared_tensor::server {

/// GET /ws: the WebSockets of a server. Thread-safe.
class SocketEndpoint {
public:
    static constexpr std::string_view kPath = "/ws";

    SocketEndpoint(Services& all, const RpcEndpoint& rpc);
    ~SocketEndpoint();  ///< waits for functions that stream; all sockets must have ended before

    /// Returns the plan of one more WebSocket; nothing if the limit is reached or the server is draining.
    std::optional<net::WebSocketPlan> plan(const net::RequestHead& head, const Principal& principal);

    /// All sockets reject new calls, and close when their last call has ended.
    void drain();
    /// Closes all sockets now.
    void close();
    /// Closes the sockets whose tokens were revoked.
    void close_revoked();

    std::size_t sockets() const;

private:
    struct State {
        std::unordered_set<std::shared_ptr<RpcSocket>> sockets;
        bool draining = false;
    };
    void serve(const std::shared_ptr<RpcSocket>& socket);
    std::unordered_set<std::shared_ptr<RpcSocket>> stop_taking();

    Services& all_;
    const RpcEndpoint& rpc_;
    Budget places_;  ///< of sockets, from the handshake to the end
    Guarded<State> state_;
    RpcSocket::Threads threads_;
};

}  // namespace shared_tensor::server
