#include "net/client/client.hpp"

#include <optional>
#include <utility>

#include "base/concurrency/at_end.hpp"
#include "net/client/client_connection.hpp"
#include "net/web_socket/web_socket_handshake.hpp"

namespace shared_tensor::net {

using std::chrono::steady_clock;
using Kind = TransportError::Kind;

void Client::take_place(const ClientRequest& request, const std::stop_token& stop) {
    const std::stop_callback wakes(stop, [this] { pool_.wake_all(); });
    auto pool = pool_.lock();
    const auto ready = [&](const Pool& now) { return stop.stop_requested() || now.taken < options_.max_connections; };
    if (request.deadline == Time::max()) {  // wait_until would overflow
        pool.wait(ready);
    } else if (!pool.wait_until(request.deadline, ready)) {
        throw TransportError(Kind::timeout, false, "no connection became free in time");
    }
    if (stop.stop_requested()) {
        pool_.notify_one();  // this thread may have been woken for a place that it does not take
        check_stops(request, false);
    }
    ++pool->taken;
}

/// Throws if the request or the client was stopped.
void Client::check_stops(const ClientRequest& request, bool sent) const {
    if (request.stop.stop_requested()) throw TransportError(Kind::cancelled, sent, "its caller cancelled it");
    if (stop_.stop_requested()) throw TransportError(Kind::broken, sent, "the client was shut down");
}

/// An idle connection that the server still holds open; null if there is none.
Client::Connection Client::take_idle() {
    while (true) {
        Idle found = pool_.with([](Pool& pool) {
            if (pool.idle.empty()) return Idle{};
            Idle last = std::move(pool.idle.back());
            pool.idle.pop_back();
            return last;
        });
        if (!found.connection) return nullptr;
        const bool old = steady_clock::now() > later(found.since, options_.idle_limit);
        if (!old && !found.connection->stale()) return found.connection;
    }
}

Client::Connection Client::open(Time deadline, const std::stop_token& stop) {
    auto stream = connect_to(options_.endpoint, deadline, options_.connect_timeout, stop);
    opened_.fetch_add(1, std::memory_order_relaxed);
    return std::make_shared<ClientConnection>(std::move(stream), options_.endpoint.authority(),
                                              options_.max_response_bytes);
}

/// Gives a place back, with the connection that had it (null if none was opened).
void Client::give_back(Connection connection) {
    Connection closed;  // destroyed outside the lock
    pool_.with([&](Pool& pool) {
        --pool.taken;
        if (!connection) return;
        if (connection->reusable() && !stop_.stop_requested()) {
            pool.idle.push_back({std::move(connection), steady_clock::now()});
        } else {
            closed = std::move(connection);
        }
    });
    pool_.notify_one();
}

ClientResponse Client::exchange(ClientConnection& connection, const ClientRequest& request,
                                const std::stop_token& stop) {
    const std::stop_callback closes(stop, [&] { connection.shutdown(); });
    check_stops(request, false);
    const AtEnd counted([&, in = connection.bytes_in(), out = connection.bytes_out()] {
        bytes_in_.fetch_add(connection.bytes_in() - in, std::memory_order_relaxed);
        bytes_out_.fetch_add(connection.bytes_out() - out, std::memory_order_relaxed);
    });
    return connection.send(request, buffers_);
}

ClientResponse Client::send(const ClientRequest& request) {
    std::optional<EitherStop> either;
    if (request.stop.stop_possible()) either.emplace(stop_.get_token(), request.stop);
    const std::stop_token stop = either ? either->token() : stop_.get_token();
    take_place(request, stop);
    Connection connection;
    const AtEnd returned([&] {
        if (stop.stop_requested()) connection.reset();  // it may have been shut down
        give_back(std::move(connection));
    });
    try {
        connection = take_idle();
        if (connection != nullptr) {
            reused_.fetch_add(1, std::memory_order_relaxed);
        } else {
            connection = open(request.deadline, stop);
        }
        return exchange(*connection, request, stop);
    } catch (const TransportError& error) {
        check_stops(request, error.sent);
        throw;
    }
}

std::variant<std::shared_ptr<WebSocket>, ClientResponse> Client::connect_web_socket(ClientRequest request) {
    WebSocketLimits limits;
    limits.max_text_bytes = limits.max_binary_bytes = options_.max_response_bytes;
    const std::stop_token of_call = request.stop;
    const EitherStop either(stop_.get_token(), of_call);
    request.stop = either.token();
    try {
        return net::connect_web_socket(options_.endpoint, std::move(request), options_.connect_timeout, limits,
                                       buffers_);
    } catch (const TransportError&) {
        if (!of_call.stop_requested()) throw;
        throw TransportError(Kind::cancelled, false, "its caller cancelled it");
    }
}

void Client::shutdown() {
    stop_.request_stop();
    const std::vector<Idle> unused = pool_.with([](Pool& pool) { return std::exchange(pool.idle, {}); });
}

Client::~Client() { Client::shutdown(); }

Client::Stats Client::stats() const {
    return {opened_.load(std::memory_order_relaxed), reused_.load(std::memory_order_relaxed),
            bytes_in_.load(std::memory_order_relaxed), bytes_out_.load(std::memory_order_relaxed)};
}

}  // namespace shared_tensor::net
