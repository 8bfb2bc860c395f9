#include "net/server/connection_table.hpp"

#include <sys/socket.h>

#include <algorithm>

namespace shared_tensor::net {

namespace {

using Waiting = Connection::Waiting;

/// Whether the client has sent bytes that no thread has read yet.
bool has_unread(const Connection& connection) {
    char byte = 0;
    return ::recv(connection.stream->fd(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0;
}

}  // namespace

/// Many clients have the same address behind a proxy and on loopback.
std::size_t ConnectionTable::most_of_source(const Peer& peer, bool loopback) const {
    if (peer.unix_socket) return options_.max_connections;
    if (options_.max_client_connections > 0) return options_.max_client_connections;
    return loopback ? options_.max_connections : std::max<std::size_t>(1, options_.max_connections / 2);
}

std::size_t ConnectionTable::most_untrusted() const {
    if (options_.max_untrusted_connections > 0) return options_.max_untrusted_connections;
    return std::max<std::size_t>(1, options_.max_connections / 4);
}

/// Adds a connection, and its id to `ids` if that is not null. Adds nothing if there is no memory.
void ConnectionTable::enter(Table& table, const std::shared_ptr<Connection>& connection, std::set<std::uint64_t>* ids) {
    const auto entered = table.connections.emplace(connection->id, connection).first;
    try {
        if (ids != nullptr) ids->insert(connection->id);
    } catch (...) {
        table.connections.erase(entered);
        throw;
    }
}

/// So untrusted clients that send nothing never keep out a client that is about to send a request.
ConnectionTable::Place ConnectionTable::add(const std::shared_ptr<Connection>& connection, bool loopback) {
    if (!connection->trusted && has_most_untrusted()) {
        const auto oldest = take_oldest_silent(false);
        if (oldest == nullptr) return Place::none_for_client;  // all of them are being served
        drop(oldest);
    }
    const std::size_t most = most_of_source(connection->peer, loopback);
    return table_.with([&](Table& table) {
        if (table.served >= options_.max_connections) return Place::none;
        std::size_t& of_source = table.of_source[connection->source];
        if (of_source >= most) return Place::none_for_client;
        enter(table, connection, connection->trusted ? nullptr : &table.untrusted);
        ++table.served;
        ++of_source;
        return Place::taken;
    });
}

void ConnectionTable::add_rejected(const std::shared_ptr<Connection>& connection) {
    table_.with([&](Table& table) { enter(table, connection, &table.rejected); });
}

bool ConnectionTable::too_many_rejected() const {
    const std::size_t most = std::min(kMaxRejected, std::max<std::size_t>(4, options_.max_connections / 4));
    return table_.with([&](const Table& table) { return table.rejected.size() >= most; });
}

/// Takes the oldest connection that sends nothing: a rejected one, or an untrusted one.
std::shared_ptr<Connection> ConnectionTable::take_oldest_silent(bool rejected) {
    return table_.with([&](const Table& table) -> std::shared_ptr<Connection> {
        for (const std::uint64_t id : rejected ? table.rejected : table.untrusted) {
            const auto& connection = table.connections.at(id);
            if (!connection->is_parked()) continue;
            if (connection->waiting.load() != Waiting::lingering_close && has_unread(*connection)) continue;
            if (connection->take()) return connection;
        }
        return nullptr;
    });
}

std::shared_ptr<Connection> ConnectionTable::find(std::uint64_t id) const {
    return table_.with([&](const Table& table) {
        const auto found = table.connections.find(id);
        return found == table.connections.end() ? nullptr : found->second;
    });
}

void ConnectionTable::trust(Connection& connection) {
    table_.with([&](Table& table) {
        connection.trusted = true;
        table.untrusted.erase(connection.id);
    });
}

SteadyTime ConnectionTable::deadline_of(Connection& connection, Waiting waiting) const {
    const SteadyTime now = std::chrono::steady_clock::now();
    if (waiting == Waiting::idle) return now + options_.idle_timeout;
    if (waiting == Waiting::head) {
        if (connection.head_deadline == SteadyTime{}) connection.head_deadline = now + options_.header_timeout;
        return connection.head_deadline;
    }
    return connection.waiting.load() == Waiting::lingering_close ? connection.deadline.load() : now + kLingeringClose;
}

void ConnectionTable::park(const std::shared_ptr<Connection>& connection, Waiting waiting) {
    connection->deadline.store(deadline_of(*connection, waiting));
    connection->waiting.store(waiting);
    const std::uint64_t id = connection->id;
    const int fd = connection->stream->fd();
    connection->state.store(Connection::State::parked, std::memory_order_release);
    // From here on another thread may own it. `connection` only keeps the number of the descriptor from being reused.
    if (!poller_.rearm(fd, id, Poller::For::request)) connection->stream->shutdown();
}

void ConnectionTable::drop(const std::shared_ptr<Connection>& connection) {
    const bool last = table_.with([&](Table& table) {
        const bool was_there = table.connections.erase(connection->id) > 0;
        if (!was_there) return table.connections.empty();
        if (connection->rejected) {
            table.rejected.erase(connection->id);
            return table.connections.empty();
        }
        --table.served;
        table.untrusted.erase(connection->id);
        const auto found = table.of_source.find(connection->source);
        if (found != table.of_source.end() && --found->second == 0) table.of_source.erase(found);
        return table.connections.empty();
    });
    if (last) table_.notify_all();
}

std::vector<std::shared_ptr<Connection>> ConnectionTable::take_expired(SteadyTime now, bool draining) {
    const auto is_over = [&](const Connection& connection) {
        return connection.deadline.load() <= now || (draining && connection.waiting.load() != Waiting::lingering_close);
    };
    std::vector<std::shared_ptr<Connection>> expired, served_meanwhile;
    table_.with([&](const Table& table) {
        for (const auto& [id, connection] : table.connections) {
            if (!connection->is_parked() || !is_over(*connection) || !connection->take()) continue;
            (is_over(*connection) ? expired : served_meanwhile).push_back(connection);
        }
    });
    for (const auto& connection : served_meanwhile)
        park(connection, connection->waiting.load());
    return expired;
}

bool ConnectionTable::wait_until_empty(SteadyTime deadline) {
    return table_.lock().wait_until(deadline, [](const Table& table) { return table.connections.empty(); });
}

bool ConnectionTable::empty() const {
    return table_.with([](const Table& table) { return table.connections.empty(); });
}

std::vector<std::shared_ptr<Connection>> ConnectionTable::all() const {
    return table_.with([](const Table& table) {
        std::vector<std::shared_ptr<Connection>> all;
        all.reserve(table.connections.size());
        for (const auto& [id, connection] : table.connections)
            all.push_back(connection);
        return all;
    });
}

}  // namespace shared_tensor::net
