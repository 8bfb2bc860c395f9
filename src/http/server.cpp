#include "http/server.hpp"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <map>
#include <unordered_map>

#include "http/acceptor.hpp"
#include "http/body_reader.hpp"
#include "http/connection_server.hpp"
#include "http/head_parser.hpp"
#include "http/poller.hpp"
#include "http/response_writer.hpp"
#include "http/server_context.hpp"
#include "util/check.hpp"
#include "util/guarded.hpp"
#include "util/log.hpp"
#include "util/memory_size.hpp"

namespace shared_tensor::http {

namespace {

using std::chrono::milliseconds;

constexpr std::uint64_t kFirstConnection = 16;  // smaller keys are listeners
constexpr milliseconds kThreadIdleLimit{10'000};
constexpr milliseconds kGoodbye{1'000};          // how long a client that was sent away may take to read why
constexpr std::size_t kGoodbyeBytes = 16 << 20;  // and how much of its body is thrown away meanwhile
constexpr milliseconds kHandlersEnd{1'000};      // how long handlers may take to see that their connection is cut
constexpr std::size_t kMaxLingering = 64;        // clients beyond max_connections that may send a request so long

std::size_t quarter_of_memory() { return static_cast<std::size_t>(memory_size() / 4); }

void check(const ServerOptions& options) {
    SHARED_TENSOR_CHECK(!options.host.empty() || !options.unix_socket.empty(),
                        "a server needs an address or a socket path");
    SHARED_TENSOR_CHECK(options.max_connections > 0, "a server without connections serves nobody");
    SHARED_TENSOR_CHECK(options.reserved_threads > 0, "without a thread of their own short requests may wait for ever");
}

/// Whether the client has sent something that nobody has read yet.
bool has_unread(const Connection& connection) {
    char byte = 0;
    return ::recv(connection.wire->fd(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0;
}

}  // namespace

class Server::Impl final : public PollerEvents, public ConnectionKeeper {
public:
    Impl(const ServerOptions& options, Handler& handler)
        : context_(options, handler,
                   options.max_bytes_in_flight > 0 ? options.max_bytes_in_flight : quarter_of_memory()),
          pool_("st-connection", options.max_connections + kMaxLingering + options.reserved_threads, kThreadIdleLimit,
                [this] { return std::make_unique<ConnectionServer>(context_, *this); }) {
        check(options);
        context_.watch_peer = [this](Connection& connection) {
            poller_.rearm(connection.wire->fd(), connection.id, Poller::For::hangup);
        };
        context_.trust = [this](Connection& connection) {
            connection.trusted = true;
            table_.with([&](Table& table) { table.untrusted.erase(connection.id); });
        };
        context_.hold_thread = [this] { return pool_.hold(); };
        context_.release_thread = [this] { pool_.release_hold(); };
    }
    ~Impl() override { stop(milliseconds(0)); }

    void start();
    int port() const { return port_; }
    void drain();
    bool stop(milliseconds grace);
    ServerStats stats() const;
    BufferPool& buffers() { return context_.buffers; }
    std::shared_ptr<const void> hold_bytes(BodyBudget* client, std::size_t bytes) {
        auto shares = take_shares(context_, client, bytes);
        return shares ? std::make_shared<const Shares>(std::move(*shares)) : nullptr;
    }
    void use_tls(std::shared_ptr<const TlsServer> tls) {
        context_.tls.with([&](auto& held) { held.swap(tls); });
    }

    void on_event(std::uint64_t key, std::uint32_t events) override;
    SteadyTime on_tick(SteadyTime now) override;
    void park(const std::shared_ptr<Connection>& connection, Connection::Waiting waiting) override;
    void drop(const std::shared_ptr<Connection>& connection) override;

private:
    struct Table {
        std::unordered_map<std::uint64_t, std::shared_ptr<Connection>> connections;
        std::unordered_map<std::string, std::size_t> of_source;          ///< of those that are served, as are the next
        std::map<std::uint64_t, std::shared_ptr<Connection>> untrusted;  ///< in the order of their coming
        std::map<std::uint64_t, std::shared_ptr<Connection>> refused;    ///< likewise, those that may read or ask why
        std::size_t served = 0;
    };

    void accept_from(std::size_t listener);
    void welcome(Accepted accepted);
    std::unique_ptr<Wire> make_wire(ProcessFd fd, const Peer& peer) const;
    std::size_t most_of_source(const Accepted& accepted) const;
    std::size_t most_untrusted() const;
    enum class Place { taken, none, none_for_client };
    Place take_place(const std::shared_ptr<Connection>& connection, std::size_t most_of_source);
    std::shared_ptr<Connection> take_oldest_silent(std::map<std::uint64_t, std::shared_ptr<Connection>> Table::*list);
    bool make_room_among_untrusted();
    bool make_room_among_refused();
    void turn_away(Wire& wire, const std::string& words) const;
    bool speaks_tls(const Connection& connection) const {
        return !connection.peer.unix_socket && context_.tls.with([](const auto& held) { return held != nullptr; });
    }
    bool has_sent_other_request(const Connection& connection) const;
    void refuse(const std::shared_ptr<Connection>& connection, Place place);
    void resume_listeners(SteadyTime now);
    std::shared_ptr<Connection> find(std::uint64_t key) const;
    void wave_goodbye(const std::shared_ptr<Connection>& connection);
    void expire(const std::shared_ptr<Connection>& connection);
    std::vector<std::shared_ptr<Connection>> take_expired(SteadyTime now, SteadyTime& next);
    std::string canned(int status, std::string_view reason);
    milliseconds tick() const;
    SteadyTime deadline_of(Connection& connection, Connection::Waiting waiting) const;

    ServerContext context_;
    int port_ = 0;
    bool started_ = false;
    std::string too_many_;  // answers that the poller gives, worded at start
    std::string no_descriptor_;
    std::string too_slow_;
    std::string plain_;  // to clients that speak no TLS to a server that does
    std::unique_ptr<Acceptor> acceptor_;
    std::array<SteadyTime, kFirstConnection> resting_until_{};  // listeners out of epoll; the poller's
    std::uint64_t next_id_ = kFirstConnection;                  // the poller's
    Guarded<Table> table_;
    Poller poller_;
    ConnectionPool pool_;
};

void Server::Impl::start() {
    SHARED_TENSOR_CHECK(!started_, "a server starts once");
    std::vector<Listener> listeners;
    if (!context_.options.host.empty())
        listeners.push_back(Listener::tcp(context_.options.host, context_.options.port));
    if (!listeners.empty()) port_ = listeners.front().port();
    if (!context_.options.unix_socket.empty()) listeners.push_back(Listener::unix_socket(context_.options.unix_socket));
    too_many_ = canned(503, "too many connections; try again later");
    no_descriptor_ = canned(503, "the server has no descriptor left; try again later, or raise its limit (ulimit -n)");
    too_slow_ = canned(408, "the request's headers did not arrive in time");
    plain_ = canned(400, "this server speaks TLS at this port: use https:// instead of http://");
    acceptor_ = std::make_unique<Acceptor>(std::move(listeners));
    for (std::size_t i = 0; i < acceptor_->count(); ++i) {
        SHARED_TENSOR_CHECK_ERRNO(poller_.add(acceptor_->fd(i), i, Poller::For::listening) ? 0 : -1, "epoll_ctl");
    }
    pool_.start(context_.options.reserved_threads);
    started_ = true;
    poller_.start(*this);
}

std::string Server::Impl::canned(int status, std::string_view reason) {
    return render_response(context_.handler.fault(status, reason), {.close = true});
}

void Server::Impl::on_event(std::uint64_t key, std::uint32_t events) {
    if (key < kFirstConnection) return accept_from(key);
    const auto connection = find(key);
    if (!connection) return;
    if (connection->state.load(std::memory_order_acquire) == Connection::State::active) {
        if ((events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0) connection->gone_watch.report();
        return;
    }
    connection->state.store(Connection::State::active, std::memory_order_relaxed);
    if (connection->waiting == Connection::Waiting::goodbye) return wave_goodbye(connection);
    try {
        if (pool_.submit(connection)) return;
    } catch (const std::exception& error) {  // no memory: nobody else would come back to it
        log::error("a connection is given up: ", error.what());
    }
    drop(connection);
}

void Server::Impl::accept_from(std::size_t listener) {
    const auto outcome = acceptor_->accept_some(
        listener, [this](Accepted accepted) { welcome(std::move(accepted)); },
        [this](Accepted accepted) {
            Counters::add(context_.counters.refused, 1);
            turn_away(*make_wire(std::move(accepted.fd), accepted.peer), no_descriptor_);
        });
    if (outcome != Acceptor::Outcome::rest) return;
    poller_.remove(acceptor_->fd(listener));
    resting_until_[listener] = std::chrono::steady_clock::now() + Acceptor::kRest;
    poller_.wake();  // to learn of the new time
}

void Server::Impl::resume_listeners(SteadyTime now) {
    for (std::size_t i = 0; i < acceptor_->count(); ++i) {
        if (resting_until_[i] == SteadyTime{} || resting_until_[i] > now) continue;
        const int fd = acceptor_->fd(i);
        if (fd < 0 || poller_.add(fd, i, Poller::For::listening)) {
            resting_until_[i] = {};
        } else {
            resting_until_[i] = now + Acceptor::kRest;
        }
    }
}

void Server::Impl::welcome(Accepted accepted) {
    Counters::add(context_.counters.accepted, 1);
    if (accepted.loopback) {
        const PeerUsers::User user = context_.users.of(accepted.fd.get());
        accepted.peer.uid = user.uid;
        accepted.peer.uid_error = user.error;
    }
    const std::size_t most = most_of_source(accepted);
    auto wire = make_wire(std::move(accepted.fd), accepted.peer);
    auto connection = std::make_shared<Connection>(next_id_++, std::move(wire), std::move(accepted.peer));
    const Peer& peer = connection->peer;
    connection->source = peer.uid ? peer.ip + " uid:" + std::to_string(*peer.uid) : peer.ip;
    connection->trusted = context_.handler.trusts(peer);
    connection->state.store(Connection::State::active, std::memory_order_relaxed);
    const std::size_t others = table_.with([](const Table& table) { return table.connections.size(); });
    if (const Place place = take_place(connection, most); place != Place::taken) return refuse(connection, place);
    if (!poller_.add(connection->wire->fd(), connection->id, Poller::For::hangup)) return drop(connection);
    if (others == 0) poller_.wake();  // deadlines are looked after while there are connections
    connection->wire->set_linger(context_.options.spin);
    park(connection, Connection::Waiting::idle);
}

Server::Impl::Place Server::Impl::take_place(const std::shared_ptr<Connection>& connection,
                                             std::size_t most_of_source) {
    const bool crowded = !connection->trusted &&
                         table_.with([&](const Table& table) { return table.untrusted.size() >= most_untrusted(); });
    if (crowded && !make_room_among_untrusted()) return Place::none_for_client;
    return table_.with([&](Table& table) {
        if (table.served >= context_.options.max_connections) return Place::none;
        std::size_t& of_source = table.of_source[connection->source];
        if (of_source >= most_of_source) return Place::none_for_client;
        if (!connection->trusted) table.untrusted.emplace(connection->id, connection);
        try {
            table.connections.emplace(connection->id, connection);
        } catch (const std::bad_alloc&) {
            table.untrusted.erase(connection->id);
            throw;
        }
        ++table.served;
        ++of_source;
        return Place::taken;
    });
}

/// The one of the list that came first of those that no thread serves or is about to serve; it is the poller's then.
/// Null: none.
std::shared_ptr<Connection> Server::Impl::take_oldest_silent(
    std::map<std::uint64_t, std::shared_ptr<Connection>> Table::*list) {
    return table_.with([&](const Table& table) -> std::shared_ptr<Connection> {
        for (const auto& [id, connection] : table.*list) {
            if (connection->state.load(std::memory_order_acquire) != Connection::State::parked) continue;
            if (connection->waiting != Connection::Waiting::goodbye && has_unread(*connection)) continue;
            connection->state.store(Connection::State::active, std::memory_order_relaxed);
            return connection;
        }
        return nullptr;
    });
}

/// A client that is about to send a request is never kept out by others that have not shown who they are and send none.
/// False: all of them are served just now.
bool Server::Impl::make_room_among_untrusted() {
    const auto oldest = take_oldest_silent(&Table::untrusted);
    if (oldest != nullptr) drop(oldest);
    return oldest != nullptr;
}

/// The oldest of them has had its moment. False: all of them are served just now.
bool Server::Impl::make_room_among_refused() {
    const auto& options = context_.options;
    const std::size_t most = std::min(kMaxLingering, std::max<std::size_t>(4, options.max_connections / 4));
    if (table_.with([](const Table& table) { return table.refused.size(); }) < most) return true;
    const auto oldest = take_oldest_silent(&Table::refused);
    if (oldest != nullptr) expire(oldest);
    return oldest != nullptr;
}

std::size_t Server::Impl::most_untrusted() const {
    const auto& options = context_.options;
    if (options.max_untrusted_connections > 0) return options.max_untrusted_connections;
    return std::max<std::size_t>(1, options.max_connections / 4);
}

std::unique_ptr<Wire> Server::Impl::make_wire(ProcessFd fd, const Peer& peer) const {
    const auto tls = context_.tls.with([](const auto& held) { return held; });
    if (tls == nullptr || peer.unix_socket) return std::make_unique<SocketWire>(std::move(fd));
    return tls->accept(std::move(fd), plain_);
}

/// Behind a proxy, and on loopback, many clients have one address.
std::size_t Server::Impl::most_of_source(const Accepted& accepted) const {
    const auto& options = context_.options;
    if (accepted.peer.unix_socket) return options.max_connections;
    if (options.max_client_connections > 0) return options.max_client_connections;
    return accepted.loopback ? options.max_connections : std::max<std::size_t>(1, options.max_connections / 2);
}

/// Whether a whole request is there that is not about health. Takes nothing from what was sent.
bool Server::Impl::has_sent_other_request(const Connection& connection) const {
    if (speaks_tls(connection)) return false;
    std::array<char, 4096> bytes;
    const ssize_t size = ::recv(connection.wire->fd(), bytes.data(), bytes.size(), MSG_PEEK | MSG_DONTWAIT);
    if (size <= 0) return false;
    const std::string_view sent(bytes.data(), static_cast<std::size_t>(size));
    const auto scanned = HeadScan().advance(sent, HeadLimits());
    const auto* head_bytes = std::get_if<std::size_t>(&scanned);
    if (head_bytes == nullptr) return false;
    const auto parsed = parse_request_head(sent.substr(0, *head_bytes));
    const auto* request = std::get_if<RequestFrame>(&parsed);
    if (request == nullptr || request->framing.chunked) return false;
    const bool is_whole = request->framing.length.value_or(0) <= sent.size() - *head_bytes;
    return is_whole && !context_.handler.is_about_health(request->head);
}

/// Clients get a moment to read why, as long as not many others come. When the server is full they may send a request
/// meanwhile: it is answered if it asks about the server's health, else with 503.
void Server::Impl::refuse(const std::shared_ptr<Connection>& connection, Place place) {
    Counters::add(context_.counters.refused, 1);
    connection->refused = true;
    const bool may_ask = place == Place::none;
    const bool may_linger = connection->trusted && (may_ask || !speaks_tls(*connection));
    // Whoever has asked for something else gets the same answer now: it takes no place of those that ask about health.
    if (!may_linger || (may_ask && has_sent_other_request(*connection)) || !make_room_among_refused())
        return turn_away(*connection->wire, too_many_);
    table_.with([&](Table& table) {
        table.connections.emplace(connection->id, connection);
        try {
            table.refused.emplace(connection->id, connection);
        } catch (const std::bad_alloc&) {
            table.connections.erase(connection->id);
            throw;
        }
    });
    if (!poller_.add(connection->wire->fd(), connection->id, Poller::For::hangup)) return drop(connection);
    if (may_ask) {
        connection->head_deadline = std::chrono::steady_clock::now() + kGoodbye;
        return park(connection, Connection::Waiting::head);
    }
    const iovec words{too_many_.data(), too_many_.size()};
    connection->wire->write({&words, 1});
    connection->wire->finish_writing();
    park(connection, Connection::Waiting::goodbye);
}

/// Waits for nothing. What the client has sent is read first: closing with bytes unread would be a reset, and its
/// answer could be lost. Over TLS there is no answer, for it would need a handshake first.
void Server::Impl::turn_away(Wire& wire, const std::string& words) const {
    const iovec part{const_cast<char*>(words.data()), words.size()};  // only read
    wire.write({&part, 1});
    wire.finish_writing();
    std::array<char, 16 << 10> unread;
    wire.read(unread.data(), unread.size(), Wire::Wait::none);
}

SteadyTime Server::Impl::deadline_of(Connection& connection, Connection::Waiting waiting) const {
    const SteadyTime now = std::chrono::steady_clock::now();
    if (waiting == Connection::Waiting::idle) return now + context_.options.idle_timeout;
    if (waiting == Connection::Waiting::head) {
        if (connection.head_deadline == SteadyTime{}) connection.head_deadline = now + context_.options.header_timeout;
        return connection.head_deadline;
    }
    return connection.waiting == Connection::Waiting::goodbye ? connection.deadline : now + kGoodbye;
}

void Server::Impl::park(const std::shared_ptr<Connection>& connection, Connection::Waiting waiting) {
    connection->deadline = deadline_of(*connection, waiting);
    connection->waiting = waiting;
    const std::uint64_t id = connection->id;
    const int fd = connection->wire->fd();
    connection->state.store(Connection::State::parked, std::memory_order_release);
    // From here the poller may have taken it on; `connection` only keeps the descriptor from being reused.
    if (!poller_.rearm(fd, id, Poller::For::request)) connection->wire->shutdown();
}

void Server::Impl::drop(const std::shared_ptr<Connection>& connection) {
    const bool last = table_.with([&](Table& table) {
        const bool was_there = table.connections.erase(connection->id) > 0;
        table.refused.erase(connection->id);
        if (!was_there || connection->refused) return table.connections.empty();
        --table.served;
        table.untrusted.erase(connection->id);
        const auto found = table.of_source.find(connection->source);
        if (found != table.of_source.end() && --found->second == 0) table.of_source.erase(found);
        return table.connections.empty();
    });
    if (last) table_.notify_all();
}

std::shared_ptr<Connection> Server::Impl::find(std::uint64_t key) const {
    return table_.with([&](const Table& table) {
        const auto found = table.connections.find(key);
        return found == table.connections.end() ? nullptr : found->second;
    });
}

/// Throws away what the client still sends, until it has read our answer and closes.
void Server::Impl::wave_goodbye(const std::shared_ptr<Connection>& connection) {
    std::array<char, 64 << 10> unread;
    const WireResult got = connection->wire->read(unread.data(), unread.size(), Wire::Wait::none);
    connection->goodbye_bytes += got.bytes;
    const bool more = got.status == WireStatus::again || got.status == WireStatus::ok;
    if (!more || connection->goodbye_bytes > kGoodbyeBytes) return drop(connection);
    park(connection, Connection::Waiting::goodbye);
}

void Server::Impl::expire(const std::shared_ptr<Connection>& connection) {
    if (connection->waiting == Connection::Waiting::head && !context_.draining.load(std::memory_order_relaxed)) {
        std::string& text = connection->refused ? too_many_ : too_slow_;
        const iovec words{text.data(), text.size()};
        connection->wire->write({&words, 1});
    }
    drop(connection);
}

/// How late a deadline may be noticed.
milliseconds Server::Impl::tick() const {
    const auto& options = context_.options;
    const milliseconds shortest = std::min({options.idle_timeout, options.header_timeout, kGoodbye});
    return std::clamp(shortest / 4, milliseconds(1), milliseconds(250));
}

std::vector<std::shared_ptr<Connection>> Server::Impl::take_expired(SteadyTime now, SteadyTime& next) {
    const bool draining = context_.draining.load(std::memory_order_relaxed);
    std::vector<std::shared_ptr<Connection>> expired;
    table_.with([&](const Table& table) {
        if (!table.connections.empty()) next = now + tick();
        for (const auto& [id, connection] : table.connections) {
            if (connection->state.load(std::memory_order_acquire) != Connection::State::parked) continue;
            const bool no_request = connection->waiting != Connection::Waiting::goodbye;
            if (connection->deadline > now && !(draining && no_request)) continue;
            expired.push_back(connection);
            connection->state.store(Connection::State::active, std::memory_order_relaxed);
        }
    });
    return expired;
}

SteadyTime Server::Impl::on_tick(SteadyTime now) {
    SteadyTime next = SteadyTime::max();
    for (const auto& connection : take_expired(now, next))
        expire(connection);
    resume_listeners(now);
    for (const SteadyTime until : resting_until_) {
        if (until != SteadyTime{}) next = std::min(next, until);
    }
    return next;
}

void Server::Impl::drain() {
    if (!started_ || context_.draining.exchange(true)) return;
    acceptor_->close();
    poller_.wake();
}

bool Server::Impl::stop(milliseconds grace) {
    if (!started_) return true;
    drain();
    const auto is_empty = [](const Table& table) { return table.connections.empty(); };
    table_.lock().wait_until(std::chrono::steady_clock::now() + grace, is_empty);
    const auto left = table_.with([](const Table& table) { return table.connections; });
    for (const auto& [id, connection] : left)
        connection->wire->shutdown();
    if (!table_.lock().wait_until(std::chrono::steady_clock::now() + kHandlersEnd, is_empty)) return false;
    pool_.stop();  // the poller still tells waiting handlers that their clients are gone
    poller_.stop();
    return true;
}

ServerStats Server::Impl::stats() const {
    const Counters& counters = context_.counters;
    ServerStats stats;
    stats.accepted = counters.accepted.load(std::memory_order_relaxed);
    stats.refused = counters.refused.load(std::memory_order_relaxed);
    stats.requests = counters.requests.load(std::memory_order_relaxed);
    stats.bytes_in = counters.bytes_in.load(std::memory_order_relaxed);
    stats.bytes_out = counters.bytes_out.load(std::memory_order_relaxed);
    stats.threads = pool_.threads();
    table_.with([&](const Table& table) {
        stats.connections = table.connections.size();
        const auto is_parked = [](const auto& entry) {
            return entry.second->state.load(std::memory_order_relaxed) == Connection::State::parked;
        };
        const auto& all = table.connections;
        stats.parked = static_cast<std::size_t>(std::count_if(all.begin(), all.end(), is_parked));
    });
    return stats;
}

Server::Server(const ServerOptions& options, Handler& handler) : impl_(std::make_unique<Impl>(options, handler)) {}
Server::~Server() = default;

void Server::start() { impl_->start(); }
int Server::port() const { return impl_->port(); }
void Server::drain() { impl_->drain(); }
bool Server::stop(std::chrono::milliseconds grace) { return impl_->stop(grace); }
ServerStats Server::stats() const { return impl_->stats(); }
BufferPool& Server::buffers() { return impl_->buffers(); }
std::shared_ptr<const void> Server::hold_bytes(BodyBudget* client, std::size_t bytes) {
    return impl_->hold_bytes(client, bytes);
}
void Server::use_tls(std::shared_ptr<const TlsServer> tls) { impl_->use_tls(std::move(tls)); }

}  // namespace shared_tensor::http
