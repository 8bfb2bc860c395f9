#include "http/web_socket_client.hpp"

#include <algorithm>
#include <utility>

#include "http/client_connection.hpp"
#include "http/connect.hpp"
#include "http/text.hpp"
#include "http/web_socket_handshake.hpp"

namespace shared_tensor::http {

namespace {

constexpr std::size_t kMaxRefusal = 1 << 20;  // bytes of an answer that refuses

/// The server has to prove that it is no other kind of server, and to choose nothing that was not offered.
void check_answer(const ClientResponse& response, const std::string& key) {
    const auto& headers = response.headers;
    const auto accept = headers.find("Sec-WebSocket-Accept");
    const auto has = [&](std::string_view name, std::string_view token) {
        const auto value = headers.find(name);
        return value && list_has(*value, token);
    };
    const bool chose = headers.find("Sec-WebSocket-Extensions") || headers.find("Sec-WebSocket-Protocol");
    const bool switched = has("Upgrade", "websocket") && has("Connection", "upgrade");
    if (accept && *accept == accept_key(key) && switched && !chose) return;
    throw TransportError(TransportError::Kind::protocol, true, "the server's handshake is not that of a WebSocket");
}

struct Connected {
    std::unique_ptr<Wire> wire;
    WebSocket socket;
};

}  // namespace

/// One that can be ended while this is there.
class HandshakeInProgress {
public:
    HandshakeInProgress(Handshakes* all, ClientConnection& mine) : all_(all), mine_(mine) {
        if (all_ == nullptr) return;
        const bool shut = all_->state_.with([&](Handshakes::State& state) {
            state.connections.insert(&mine_);
            return state.shut;
        });
        if (shut) mine_.shutdown();
    }
    HandshakeInProgress(const HandshakeInProgress&) = delete;
    HandshakeInProgress& operator=(const HandshakeInProgress&) = delete;
    ~HandshakeInProgress() {
        if (all_ != nullptr) all_->state_.with([&](Handshakes::State& state) { state.connections.erase(&mine_); });
    }

private:
    Handshakes* const all_;
    ClientConnection& mine_;
};

/// Under the lock, so that none of them goes meanwhile; a shutdown of a socket does not block.
void Handshakes::shutdown() {
    state_.with([](State& state) {
        state.shut = true;
        for (ClientConnection* connection : state.connections)
            connection->shutdown();
    });
}

std::variant<std::shared_ptr<WebSocket>, ClientResponse> connect_web_socket(const Endpoint& endpoint,
                                                                            ClientRequest request,
                                                                            std::chrono::milliseconds connect_timeout,
                                                                            WebSocketLimits limits, BufferPool& buffers,
                                                                            Handshakes* handshakes) {
    const std::string key = fresh_handshake_key();
    request.method = "GET";
    request.headers.add("Upgrade", "websocket");
    request.headers.add("Connection", "Upgrade");
    request.headers.add("Sec-WebSocket-Version", "13");
    request.headers.add("Sec-WebSocket-Key", key);
    const auto connected_by = std::min(request.deadline, std::chrono::steady_clock::now() + connect_timeout);
    ClientConnection connection(connect_to(endpoint, connected_by), endpoint.authority(), kMaxRefusal);
    ClientResponse response = [&] {
        const HandshakeInProgress in_progress(handshakes, connection);
        return connection.exchange(request, buffers);
    }();
    if (response.status != 101) return response;
    check_answer(response, key);
    auto [wire, received] = connection.take_upgraded();
    wire->set_linger(std::chrono::microseconds(0));
    Wire& bytes = *wire;
    const auto take = [&buffers](std::size_t size) { return buffers.take(size); };
    const std::shared_ptr<Connected> connected(
        new Connected{std::move(wire), WebSocket(bytes, WebSocket::Side::client, limits, take, received)});
    return std::shared_ptr<WebSocket>(connected, &connected->socket);
}

}  // namespace shared_tensor::http
