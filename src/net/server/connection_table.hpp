#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <stop_token>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/concurrency/budget.hpp"
#include "base/concurrency/clock.hpp"
#include "base/concurrency/guarded.hpp"
#include "net/message/head_parser.hpp"
#include "net/message/message.hpp"
#include "net/server/poller.hpp"
#include "net/server/server.hpp"
#include "net/stream/stream.hpp"

namespace shared_tensor::net {

/// One client's connection. It is either parked (epoll waits for its next byte, the poller for its deadline) or active
/// (one thread serves or closes it). Only its owner accesses the plain members. `state` hands it over: the owner stores
/// `parked` and arms the descriptor for one event; a thread that wants the connection calls take().
class Connection : public std::enable_shared_from_this<Connection> {
public:
    enum class State { parked, active };
    enum class Waiting {
        idle,             ///< for the first byte of a request
        head,             ///< for the rest of a head, until the deadline that its first byte set
        lingering_close,  ///< for the client's end of stream, after an answer that left a body unread
    };

    Connection(std::uint64_t number, std::unique_ptr<Stream> bytes, Peer who)
        : id(number), stream(std::move(bytes)), peer(std::move(who)) {}

    /// Makes the caller the owner of a parked connection. False if it is active already.
    bool take() {
        State parked = State::parked;
        return state.compare_exchange_strong(parked, State::active, std::memory_order_acq_rel);
    }
    bool is_parked() const { return state.load(std::memory_order_acquire) == State::parked; }

    const std::uint64_t id;
    const std::unique_ptr<Stream> stream;
    std::atomic<State> state{State::parked};
    // Written by the owner. The poller reads them before it takes a connection whose time is over.
    std::atomic<Waiting> waiting{Waiting::idle};
    std::atomic<SteadyTime> deadline{};  ///< of being parked

    Peer peer;
    std::string source;                 ///< address, and user if known: the connections of each source are counted
    bool trusted = true;                ///< else it counts as untrusted in the table, whose lock guards the change
    std::shared_ptr<Budget> principal;  ///< counts the connections of the client of the last request: `place` is one
    Budget::Share place;
    bool certificate_pending = true;  ///< the peer's certificate is read before the first request
    SteadyTime head_deadline{};       ///< set by the first byte of a request
    std::string leftover;             ///< the part of a head that was read before the connection was parked
    HeadScan scan;
    bool empty_line_skipped = false;
    std::size_t lingering_close_bytes = 0;
    bool rejected = false;  ///< beyond the limits: its client only gets to read why

    Guarded<std::stop_source> gone{std::nostopstate};  ///< for ResponseStream::client_gone of the current request
};

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
    /// Whether there are as many untrusted connections as there may be.
    bool has_most_untrusted() const {
        return table_.with([&](const Table& table) { return table.untrusted.size() >= most_untrusted(); });
    }
    /// A request of this connection was admitted, so it does not count as untrusted any more.
    void trust(Connection& connection);
    /// Lets the connection wait in epoll. The caller does not own it any more.
    void park(const std::shared_ptr<Connection>& connection, Connection::Waiting waiting);
    /// The peer of an active connection is gone.
    static void report_gone(const Connection& connection) {
        auto source = connection.gone.with([](const std::stop_source& gone) { return gone; });
        source.request_stop();
    }
    /// From now on report_gone() is called when the peer of this active connection disappears.
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
