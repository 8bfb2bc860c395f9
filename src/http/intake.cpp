#include "http/intake.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <array>

#include "http/head_parser.hpp"
#include "http/response_writer.hpp"

namespace shared_tensor::http {

namespace {

using std::chrono::milliseconds;
using Waiting = Connection::Waiting;

std::vector<Listener> bind(const ServerOptions& options) {
    std::vector<Listener> listeners;
    if (!options.host.empty()) listeners.push_back(Listener::tcp(options.host, options.port));
    if (!options.unix_socket.empty()) listeners.push_back(Listener::unix_socket(options.unix_socket));
    return listeners;
}

/// As far as the client's system takes it now.
void write_now(Wire& wire, const std::string& words) {
    const iovec part{const_cast<char*>(words.data()), words.size()};  // only read
    wire.write({&part, 1});
}

}  // namespace

Intake::Intake(ServerContext& context)
    : context_(context),
      too_many_(canned(503, "too many connections; try again later")),
      no_descriptor_(canned(503, "the server has no descriptor left; try again later, or raise its limit (ulimit -n)")),
      too_slow_(canned(408, "the request's headers did not arrive in time")),
      plain_(canned(400, "this server speaks TLS at this port: use https:// instead of http://")) {
    auto listeners = bind(context.options);
    port_ = listeners.front().port();
    acceptor_ = std::make_unique<Acceptor>(std::move(listeners), context.poller);
}

std::string Intake::canned(int status, std::string_view reason) const {
    return render_response(context_.handler.fault(status, reason), {.close = true});
}

void Intake::accept_from(std::size_t listener) {
    acceptor_->accept_from(
        listener, [this](Accepted accepted) { welcome(std::move(accepted)); },
        [this](Accepted accepted) {
            Counters::add(context_.counters.refused, 1);
            turn_away(*make_wire(std::move(accepted.fd), accepted.peer), no_descriptor_);
        });
}

void Intake::welcome(Accepted accepted) {
    Counters::add(context_.counters.accepted, 1);
    if (accepted.loopback) {
        const PeerUsers::User user = context_.users.of(accepted.fd.get());
        accepted.peer.uid = user.uid;
        accepted.peer.uid_error = user.error;
    }
    auto wire = make_wire(std::move(accepted.fd), accepted.peer);
    auto connection = std::make_shared<Connection>(next_id_++, std::move(wire), std::move(accepted.peer));
    const Peer& peer = connection->peer;
    connection->source = peer.uid ? peer.ip + " uid:" + std::to_string(*peer.uid) : peer.ip;
    connection->trusted = context_.handler.trusts(peer);
    connection->state.store(Connection::State::active, std::memory_order_relaxed);
    ConnectionTable& table = context_.connections;
    const bool first = table.empty();
    using Place = ConnectionTable::Place;
    if (const Place place = table.add(connection, accepted.loopback); place != Place::taken)
        return refuse(connection, place == Place::none);
    if (!context_.poller.add(connection->wire->fd(), connection->id, Poller::For::hangup))
        return table.drop(connection);
    if (first) context_.poller.wake();  // deadlines are looked after while there are connections
    connection->wire->set_linger(context_.options.spin);
    table.park(connection, Waiting::idle);
}

std::unique_ptr<Wire> Intake::make_wire(ProcessFd fd, const Peer& peer) const {
    const auto tls = context_.tls.with([](const auto& held) { return held; });
    if (tls == nullptr || peer.unix_socket) return std::make_unique<Wire>(std::move(fd));
    return tls->accept(std::move(fd), plain_);
}

bool Intake::speaks_tls(const Connection& connection) const {
    return !connection.peer.unix_socket && context_.tls.with([](const auto& held) { return held != nullptr; });
}

/// Whether a whole request is there that is not about health. Takes nothing from what was sent.
bool Intake::has_sent_other_request(const Connection& connection) const {
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

/// Clients get a moment to read why, as long as not many others come. When the server is full (`may_ask`) they may send
/// a request meanwhile: it is answered if it asks about the server's health, else with 503.
void Intake::refuse(const std::shared_ptr<Connection>& connection, bool may_ask) {
    Counters::add(context_.counters.refused, 1);
    connection->refused = true;
    const bool may_linger = connection->trusted && (may_ask || !speaks_tls(*connection));
    // Whoever has asked for something else gets the same answer now: it takes no place of those that ask about health.
    if (!may_linger || (may_ask && has_sent_other_request(*connection)) || !make_room_among_refused())
        return turn_away(*connection->wire, too_many_);
    ConnectionTable& table = context_.connections;
    table.add_refused(connection);
    if (!context_.poller.add(connection->wire->fd(), connection->id, Poller::For::hangup))
        return table.drop(connection);
    if (may_ask) {
        connection->head_deadline = std::chrono::steady_clock::now() + ConnectionTable::kGoodbye;
        return table.park(connection, Waiting::head);
    }
    write_now(*connection->wire, too_many_);
    connection->wire->finish_writing();
    table.park(connection, Waiting::goodbye);
}

/// The oldest of them has had its moment. False: all of them are served just now.
bool Intake::make_room_among_refused() {
    if (!context_.connections.too_many_refused()) return true;
    const auto oldest = context_.connections.take_oldest_refused();
    if (oldest != nullptr) expire(oldest);
    return oldest != nullptr;
}

/// Waits for nothing. What the client has sent is read first: closing with bytes unread would be a reset, and its
/// answer could be lost. Over TLS there is no answer, for it would need a handshake first.
void Intake::turn_away(Wire& wire, const std::string& words) const {
    write_now(wire, words);
    wire.finish_writing();
    std::array<char, 16 << 10> unread;
    wire.read(unread.data(), unread.size(), Wire::Wait::none);
}

void Intake::expire(const std::shared_ptr<Connection>& connection) {
    const bool is_asked = connection->waiting.load() == Waiting::head;
    if (is_asked && !context_.draining.load(std::memory_order_relaxed))
        write_now(*connection->wire, connection->refused ? too_many_ : too_slow_);
    context_.connections.drop(connection);
}

SteadyTime Intake::tend(SteadyTime now) {
    // A deadline may be noticed so late:
    const auto& options = context_.options;
    const milliseconds shortest = std::min({options.idle_timeout, options.header_timeout, ConnectionTable::kGoodbye});
    const milliseconds tick = std::clamp(shortest / 4, milliseconds(1), milliseconds(250));
    const SteadyTime next = context_.connections.empty() ? SteadyTime::max() : now + tick;
    for (const auto& connection :
         context_.connections.take_expired(now, context_.draining.load(std::memory_order_relaxed)))
        expire(connection);
    return std::min(next, acceptor_->resume(now));
}

}  // namespace shared_tensor::http
