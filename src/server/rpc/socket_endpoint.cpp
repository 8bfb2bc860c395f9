#include "server/rpc/socket_endpoint.hpp"

#include <utility>

#include "base/log/log.hpp"
#include "net/message/text.hpp"
#include "server/auth/access.hpp"

namespace shared_tensor::server {

namespace {

constexpr std::chrono::milliseconds kThreadIdleLimit{10'000};
/// A WebSocket ends if its peer sends nothing for this time, not even the answer to a ping. Proxies wait as long.
constexpr std::chrono::milliseconds kSocketIdle{60'000};
constexpr std::size_t kReserved = 2;  // threads for calls that do not wait, such as task.cancel

class Runner final : public RpcSocket::Threads::Worker {
public:
    void serve(RpcSocket::Work work) override {
        try {
            work();
        } catch (const std::exception& error) {
            log::error("a call on a WebSocket: ", error.what());
        }
    }
};

}  // namespace

SocketEndpoint::SocketEndpoint(Services& all, const RpcEndpoint& rpc)
    : all_(all),
      rpc_(rpc),
      places_(all.options.sockets.max_sockets),
      threads_("st-socket", all.options.sockets.max_sockets * all.options.sockets.max_calls + kReserved,
               kThreadIdleLimit, [] { return std::make_unique<Runner>(); }) {
    threads_.start(kReserved);
}

SocketEndpoint::~SocketEndpoint() { threads_.stop(); }

std::optional<net::WebSocketPlan> SocketEndpoint::plan(const net::RequestHead& head, const Principal& principal) {
    if (state_.with([](const State& state) { return state.draining; })) return std::nullopt;
    auto free = places_.take(1);
    if (!free) return std::nullopt;
    const auto place = std::make_shared<const Budget::Share>(std::move(*free));
    net::WebSocketPlan plan;
    plan.limits = {all_.options.requests.json.max_bytes, all_.options.http.max_body_bytes, kSocketIdle,
                   all_.options.http.write_timeout, all_.options.http.min_bytes_per_second};
    if (principal.use != nullptr) {
        plan.client_budget = principal.use->bytes_in_flight;
        plan.client_connections = principal.use->connections;
    }
    if (const auto offered = head.headers.find("Sec-WebSocket-Protocol");
        offered && net::list_has(*offered, kSubprotocol))
        plan.protocol = kSubprotocol;
    plan.serve = [this, place, headers = head.headers, principal](const std::shared_ptr<net::WebSocket>& socket) {
        serve(std::make_shared<RpcSocket>(all_, rpc_, threads_, socket, headers, principal));
    };
    return plan;
}

void SocketEndpoint::serve(const std::shared_ptr<RpcSocket>& socket) {
    const bool draining = state_.with([&](State& state) {
        state.sockets.insert(socket);
        return state.draining;
    });
    if (draining) socket->drain();
    socket->leave_revoked();  // its token may have been revoked since the handshake
    const std::shared_ptr<void> left(nullptr,
                                     [&](void*) { state_.with([&](State& state) { state.sockets.erase(socket); }); });
    socket->run();
}

std::unordered_set<std::shared_ptr<RpcSocket>> SocketEndpoint::stop_taking() {
    return state_.with([](State& state) {
        state.draining = true;
        return state.sockets;
    });
}

void SocketEndpoint::drain() {
    for (const auto& socket : stop_taking())
        socket->drain();
}

void SocketEndpoint::close() {
    for (const auto& socket : stop_taking())
        socket->close();
}

void SocketEndpoint::close_revoked() {
    const auto all = state_.with([](const State& state) { return state.sockets; });
    for (const auto& socket : all)
        socket->leave_revoked();
}

std::size_t SocketEndpoint::sockets() const {
    return state_.with([](const State& state) { return state.sockets.size(); });
}

}  // namespace shared_tensor::server
