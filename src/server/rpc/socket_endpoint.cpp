#include "server/rpc/socket_endpoint.hpp"

#include <utility>

#include "base/log/log.hpp"

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

/// Counts as one of max_sockets, from the handshake to the end of the socket.
class SocketEndpoint::Place {
public:
    explicit Place(std::shared_ptr<Guarded<State>> state) : state_(std::move(state)) {}
    Place(const Place&) = delete;
    Place& operator=(const Place&) = delete;
    ~Place() {
        state_->with([](State& state) { --state.places; });
    }

private:
    const std::shared_ptr<Guarded<State>> state_;
};

SocketEndpoint::SocketEndpoint(Services& all, const RpcEndpoint& rpc)
    : all_(all),
      rpc_(rpc),
      threads_("st-socket", all.options.sockets.max_sockets * all.options.sockets.max_calls + kReserved,
               kThreadIdleLimit, [] { return std::make_unique<Runner>(); }) {
    threads_.start(kReserved);
}

SocketEndpoint::~SocketEndpoint() { threads_.stop(); }

std::optional<net::WebSocketPlan> SocketEndpoint::plan(const net::RequestHead& head, const Principal& principal) {
    const bool room = state_->with([&](State& state) {
        if (state.draining || state.places >= all_.options.sockets.max_sockets) return false;
        ++state.places;
        return true;
    });
    if (!room) return std::nullopt;
    const auto place = std::make_shared<Place>(state_);
    net::WebSocketPlan plan;
    plan.limits = {all_.options.requests.json.max_bytes, all_.options.http.max_body_bytes, kSocketIdle,
                   all_.options.http.write_timeout, all_.options.http.min_bytes_per_second};
    if (principal.use != nullptr) {
        plan.client_budget = principal.use->bytes_in_flight;
        plan.client_connections = principal.use->connections;
    }
    plan.serve = [this, place, headers = head.headers, principal](const std::shared_ptr<net::WebSocket>& socket) {
        serve(std::make_shared<RpcSocket>(all_, rpc_, threads_, socket, headers, principal));
    };
    return plan;
}

void SocketEndpoint::serve(const std::shared_ptr<RpcSocket>& socket) {
    const bool draining = state_->with([&](State& state) {
        state.sockets.insert(socket);
        return state.draining;
    });
    if (draining) socket->drain();
    socket->leave_revoked();  // its token may have been revoked since the handshake
    const std::shared_ptr<void> left(nullptr,
                                     [&](void*) { state_->with([&](State& state) { state.sockets.erase(socket); }); });
    socket->run();
}

std::unordered_set<std::shared_ptr<RpcSocket>> SocketEndpoint::stop_taking() {
    return state_->with([](State& state) {
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
    const auto all = state_->with([](const State& state) { return state.sockets; });
    for (const auto& socket : all)
        socket->leave_revoked();
}

std::size_t SocketEndpoint::sockets() const {
    return state_->with([](const State& state) { return state.sockets.size(); });
}

}  // namespace shared_tensor::server
