#pragma once

#include <memory>
#include <optional>
#include <unordered_set>

#include "server/rpc_socket.hpp"

namespace shared_tensor::server {

/// GET /ws: the WebSockets of a server. Thread-safe.
class SocketEndpoint {
public:
    static constexpr std::string_view kPath = "/ws";

    explicit SocketEndpoint(SocketParts parts);
    ~SocketEndpoint();  ///< waits for the code of calls that stream; the sockets are gone before

    /// How one more is served; nothing when there are as many as may be.
    std::optional<http::WebSocketPlan> plan(const http::RequestHead& head, const Principal& principal);

    /// Sockets take no further calls, and close when they have none.
    void drain();
    /// All close now.
    void close();
    /// Those whose tokens are valid no more close now.
    void close_revoked();

    std::size_t sockets() const;

private:
    class Place;
    struct State {
        std::unordered_set<std::shared_ptr<RpcSocket>> sockets;
        std::size_t places = 0;
        bool draining = false;
    };
    void serve(const std::shared_ptr<RpcSocket>& socket);
    std::unordered_set<std::shared_ptr<RpcSocket>> stop_taking();

    const SocketParts parts_;
    const std::shared_ptr<Guarded<State>> state_ = std::make_shared<Guarded<State>>();
    RpcSocket::Threads threads_;
};

}  // namespace shared_tensor::server
