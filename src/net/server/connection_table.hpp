#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/concurrency/guarded.hpp"
#include "net/server/connection.hpp"
#include "net/server/poller.hpp"
#include "net/server/server.hpp"

namespace shared_tensor::net {

/// A server's connections, and how many of them each client may have. Thread safety: all methods from any thread.
class ConnectionTable {
public:
    /// `options` and `poller` must outlive the table.
    ConnectionTable(const ServerOptions& options, Poller& poller) : options_(options), poller_(poller) {}

    enum class Place { taken, none, none_for_client };
    /// Takes a place for a connection that is to be served. `loopback`: its client is on this host and came by TCP.
    /// If there are too many untrusted clients, closes the oldest untrusted connection that has sent nothing.
    Place add(const std::shared_ptr<Connection>& connection, bool loopback);
    /// Takes one of the few places beyond the limits, for a client that gets a moment to read why it is rejected.
    void add_rejected(const std::shared_ptr<Connection>& connection);
    /// Whether take_oldest_rejected() has to make room before add_rejected().
    bool too_many_rejected() const;
    /// Takes the oldest rejected connection that no thread serves or is about to serve; null if there is none.
    std::shared_ptr<Connection> take_oldest_rejected() { return take_oldest_silent(true); }

    std::shared_ptr<Connection> find(std::uint64_t id) const;
    /// A request of this connection was admitted, so it does not count as untrusted any more.
    void trust(Connection& connection);
    /// Lets the connection wait in epoll. The caller does not own it any more.
    void park(const std::shared_ptr<Connection>& connection, Connection::Waiting waiting);
    /// Tells Connection::gone_watch when the peer of this active connection disappears.
    void watch_peer(const Connection& connection) {
        poller_.rearm(connection.stream->fd(), connection.id, Poller::For::hangup);
    }
    void drop(const std::shared_ptr<Connection>& connection);

    /// Takes the parked connections whose time is over. `draining`: also those that wait for a request.
    std::vector<std::shared_ptr<Connection>> take_expired(SteadyTime now, bool draining);
    bool wait_until_empty(SteadyTime deadline);
    std::vector<std::shared_ptr<Connection>> all() const;
    bool empty() const;

    /// How long a rejected client may take to read the answer.
    static constexpr std::chrono::milliseconds kLingeringClose{1'000};
    static constexpr std::size_t kMaxRejected = 64;

private:
    struct Table {
        std::map<std::uint64_t, std::shared_ptr<Connection>> connections;  ///< by id: the oldest one is first
        std::unordered_map<std::string, std::size_t> of_source;            ///< how many of each source are served
        std::set<std::uint64_t> untrusted, rejected;  ///< ids; the oldest one is first; untrusted ones are served, too
        std::size_t served = 0;
    };
    static void enter(Table& table, const std::shared_ptr<Connection>& connection, std::set<std::uint64_t>* ids);
    std::size_t most_of_source(const Peer& peer, bool loopback) const;
    std::size_t most_untrusted() const;
    std::shared_ptr<Connection> take_oldest_silent(bool rejected);
    SteadyTime deadline_of(Connection& connection, Connection::Waiting waiting) const;

    const ServerOptions& options_;
    Poller& poller_;
    Guarded<Table> table_;
};

}  // namespace shared_tensor::net
