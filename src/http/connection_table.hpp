#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "http/connection.hpp"
#include "http/poller.hpp"
#include "http/server.hpp"
#include "util/guarded.hpp"

namespace shared_tensor::http {

/// A server's connections, and who may have how many of them. Thread safety: all methods from any thread.
class ConnectionTable {
public:
    /// Both must outlive it.
    ConnectionTable(const ServerOptions& options, Poller& poller) : options_(options), poller_(poller) {}

    enum class Place { taken, none, none_for_client };
    /// A place among those that are served; `loopback`: the client is on this host and came by TCP. Closes the oldest
    /// silent connection of a client that is not trusted where there are too many of these.
    Place add(const std::shared_ptr<Connection>& connection, bool loopback);
    /// A place among the few beyond the limits that get a moment to read why.
    void add_refused(const std::shared_ptr<Connection>& connection);
    /// Whether add_refused() has to wait for take_oldest_refused().
    bool too_many_refused() const;
    /// Takes the oldest one that no thread serves or is about to serve; null: none.
    std::shared_ptr<Connection> take_oldest_refused() { return take_oldest_silent(&Table::refused); }

    std::shared_ptr<Connection> find(std::uint64_t id) const;
    /// A request of this connection was admitted: it takes no place of untrusted clients any more.
    void trust(Connection& connection);
    /// From here on the connection waits in epoll, and is no longer the caller's to touch.
    void park(const std::shared_ptr<Connection>& connection, Connection::Waiting waiting);
    /// Tells Connection::gone_watch when the peer of this active connection disappears.
    void watch_peer(const Connection& connection) {
        poller_.rearm(connection.wire->fd(), connection.id, Poller::For::hangup);
    }
    void drop(const std::shared_ptr<Connection>& connection);

    /// Takes parked connections whose time is over; `draining`: and those without a request.
    std::vector<std::shared_ptr<Connection>> take_expired(SteadyTime now, bool draining);
    bool wait_until_empty(SteadyTime deadline);
    std::vector<std::shared_ptr<Connection>> all() const;
    bool empty() const;

    /// How long a client that was sent away may take to read why.
    static constexpr std::chrono::milliseconds kGoodbye{1'000};
    static constexpr std::size_t kMaxRefused = 64;

private:
    using Ordered = std::map<std::uint64_t, std::shared_ptr<Connection>>;
    struct Table {
        std::unordered_map<std::uint64_t, std::shared_ptr<Connection>> connections;
        std::unordered_map<std::string, std::size_t> of_source;  ///< of those that are served, as are the next
        Ordered untrusted;                                       ///< in the order of their coming
        Ordered refused;                                         ///< likewise, those that may read or ask why
        std::size_t served = 0;
    };
    std::size_t most_of_source(const Peer& peer, bool loopback) const;
    std::size_t most_untrusted() const;
    std::shared_ptr<Connection> take_oldest_silent(Ordered Table::*list);
    SteadyTime deadline_of(Connection& connection, Connection::Waiting waiting) const;

    const ServerOptions& options_;
    Poller& poller_;
    Guarded<Table> table_;
};

}  // namespace shared_tensor::http
