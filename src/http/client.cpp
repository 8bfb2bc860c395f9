#include "http/client.hpp"

#include <utility>

#include "http/client_connection.hpp"
#include "util/at_end.hpp"

namespace shared_tensor::http {

using std::chrono::steady_clock;
using Kind = TransportError::Kind;

void Client::take_place(Time deadline) {
    auto pool = pool_.lock();
    const auto free = [this](const Pool& now) { return now.shut || now.taken < options_.max_connections; };
    if (deadline == Time::max()) {  // wait_until would overflow
        pool.wait(free);
    } else if (!pool.wait_until(deadline, free)) {
        throw TransportError(Kind::timeout, false, "no connection became free in time");
    }
    if (pool->shut) throw TransportError(Kind::broken, false, "the client was shut down");
    ++pool->taken;
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
        const bool old = steady_clock::now() - found.since > options_.idle_limit;
        if (!old && !found.connection->stale()) return found.connection;
    }
}

Client::Connection Client::open(Time deadline) {
    const auto limit = std::min(deadline, steady_clock::now() + options_.connect_timeout);
    auto wire = connect_to(options_.endpoint, limit);
    opened_.fetch_add(1, std::memory_order_relaxed);
    return std::make_shared<ClientConnection>(std::move(wire), options_.endpoint.authority(),
                                              options_.max_response_bytes);
}

void Client::occupy(const Connection& connection) {
    const bool shut = pool_.with([&](Pool& pool) {
        pool.busy.insert(connection);
        return pool.shut;
    });
    if (shut) throw TransportError(Kind::broken, false, "the client was shut down");
}

/// Gives a place back, with the connection that had it (null if none was opened).
void Client::give_back(Connection connection) {
    Connection closed;  // destroyed outside the lock
    pool_.with([&](Pool& pool) {
        --pool.taken;
        if (!connection) return;
        pool.busy.erase(connection);
        if (connection->reusable() && !pool.shut) {
            pool.idle.push_back({std::move(connection), steady_clock::now()});
        } else {
            closed = std::move(connection);
        }
    });
    pool_.notify_one();
}

ClientResponse Client::send(const ClientRequest& request) {
    take_place(request.deadline);
    Connection connection;
    const AtEnd returned([&] { give_back(std::move(connection)); });
    connection = take_idle();
    if (connection != nullptr) {
        reused_.fetch_add(1, std::memory_order_relaxed);
    } else {
        connection = open(request.deadline);
    }
    occupy(connection);
    const AtEnd counted([&, in = connection->bytes_in(), out = connection->bytes_out()] {
        bytes_in_.fetch_add(connection->bytes_in() - in, std::memory_order_relaxed);
        bytes_out_.fetch_add(connection->bytes_out() - out, std::memory_order_relaxed);
    });
    try {
        return connection->exchange(request, buffers_);
    } catch (const TransportError&) {
        if (pool_.with([](const Pool& pool) { return pool.shut; }))
            throw TransportError(Kind::broken, true, "the client was shut down");
        throw;
    }
}

void Client::shutdown() {
    std::vector<Idle> unused;
    const auto busy = pool_.with([&](Pool& pool) {
        pool.shut = true;
        unused.swap(pool.idle);
        return pool.busy;
    });
    for (const Connection& one : busy)
        one->shutdown();
    pool_.notify_all();
}

Client::~Client() { shutdown(); }

Client::Stats Client::stats() const {
    return {opened_.load(std::memory_order_relaxed), reused_.load(std::memory_order_relaxed),
            bytes_in_.load(std::memory_order_relaxed), bytes_out_.load(std::memory_order_relaxed)};
}

}  // namespace shared_tensor::http
