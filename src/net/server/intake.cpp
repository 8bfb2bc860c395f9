#include "net/server/intake.hpp"

#include <fcntl.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/bytes/check.hpp"
#include "base/log/log.hpp"
#include "net/message/head_parser.hpp"
#include "net/server/response_writer.hpp"

namespace shared_tensor::net {

namespace {

using std::chrono::milliseconds;
using Waiting = Connection::Waiting;

constexpr milliseconds kRest{50};   // of a listener that failed for lack of memory or descriptors
constexpr int kClientsAtOnce = 64;  // clients of one listener, before the poller handles its other events

/// Errors that belong to the waiting client and not to this server (accept(2)).
bool is_the_clients(int error) {
    static constexpr int kTheirs[] = {EINTR,     ECONNABORTED, EPROTO,       EPERM,      ENETDOWN,   ENOPROTOOPT,
                                      EHOSTDOWN, ENONET,       EHOSTUNREACH, EOPNOTSUPP, ENETUNREACH};
    return std::find(std::begin(kTheirs), std::end(kTheirs), error) != std::end(kTheirs);
}

UniqueFd open_spare() { return UniqueFd(::open("/dev/null", O_RDONLY | O_CLOEXEC)); }

std::vector<Listener> bind(const ServerOptions& options) {
    std::vector<Listener> listeners;
    for (const int fd : options.sockets)
        listeners.push_back(Listener::inherited(fd));
    if (!listeners.empty()) return listeners;
    if (!options.host.empty()) listeners.push_back(Listener::tcp(options.host, options.port));
    if (!options.unix_socket.empty()) listeners.push_back(Listener::unix_socket(options.unix_socket));
    return listeners;
}

/// Writes what the socket takes now.
void write_now(Stream& stream, const std::string& answer) {
    const iovec place = place_of(answer);
    stream.write({&place, 1});
}

}  // namespace

Intake::Intake(ServerContext& context)
    : context_(context),
      too_many_(canned(503, "too many connections; try again later")),
      no_descriptor_(canned(503, "the server has no descriptor left; try again later, or raise its limit (ulimit -n)")),
      too_slow_(canned(408, "the request's headers did not arrive in time")),
      plain_(canned(400, "this server speaks TLS at this port: use https:// instead of http://")),
      spare_(open_spare()) {
    std::vector<Listener> listeners = bind(context.options);
    for (const Listener& listener : listeners)
        port_ = std::max(port_, listener.port());  // a Unix socket has none
    resting_until_.resize(listeners.size());
    for (std::size_t i = 0; i < listeners.size(); ++i)
        SHARED_TENSOR_CHECK_ERRNO(context.poller.add_listener(listeners[i].fd(), i) ? 0 : -1, "epoll_ctl");
    listeners_.with([&](std::vector<Listener>& all) { all = std::move(listeners); });
}

std::string Intake::canned(int status, std::string_view reason) const {
    return render_response(context_.handler.rejection(status, reason, nullptr), {.close = true});
}

void Intake::close() {
    std::vector<Listener> closed;  // outside the lock
    listeners_.with([&](std::vector<Listener>& all) { closed.swap(all); });
}

Accepted Intake::accept_one(std::size_t listener) const {
    // Under the lock, since after close() the number of the listener's descriptor may belong to another file.
    return listeners_.with([&](const std::vector<Listener>& all) {
        if (listener < all.size()) return all[listener].accept();
        errno = EAGAIN;
        return Accepted();
    });
}

/// Closes the spare descriptor to accept one client, answers it, and opens the spare descriptor again. False if no
/// client was accepted.
bool Intake::accept_by_spare(std::size_t listener) {
    if (!spare_) spare_ = open_spare();
    if (!spare_) return false;
    spare_.reset();
    Accepted accepted = accept_one(listener);
    const bool accepted_one = static_cast<bool>(accepted.fd);
    if (accepted_one) reject(*make_stream(std::move(accepted.fd), accepted.peer), no_descriptor_);
    spare_ = open_spare();
    return accepted_one;
}

/// False if the listener has to rest.
bool Intake::accept_some(std::size_t listener) {
    int failures = 0;
    for (int i = 0; i < kClientsAtOnce; ++i) {
        Accepted accepted = accept_one(listener);
        if (accepted.fd) {
            complained_ = false;
            welcome(std::move(accepted));
            continue;
        }
        const int error = errno;
        if (error == EAGAIN || error == EWOULDBLOCK) return true;
        if (is_the_clients(error) && ++failures < kClientsAtOnce / 2) continue;
        if (!std::exchange(complained_, true)) {
            log::warn("cannot accept connections just now (", std::strerror(error), "); trying again until it works");
        }
        if ((error == EMFILE || error == ENFILE) && accept_by_spare(listener)) continue;
        return false;
    }
    return true;
}

/// A listener that rests is not in epoll, so its clients wait in the kernel's queue.
void Intake::on_listener(std::size_t listener) {
    if (accept_some(listener)) return;
    listeners_.with([&](const std::vector<Listener>& all) {
        if (listener < all.size()) context_.poller.remove(all[listener].fd());
    });
    resting_until_[listener] = std::chrono::steady_clock::now() + kRest;
    context_.poller.wake();  // so that on_tick() returns the new time
}

SteadyTime Intake::resume_listeners(SteadyTime now) {
    SteadyTime next = SteadyTime::max();
    for (std::size_t i = 0; i < resting_until_.size(); ++i) {
        SteadyTime& until = resting_until_[i];
        if (until == SteadyTime{}) continue;
        if (until <= now) {
            const bool goes_on = listeners_.with([&](const std::vector<Listener>& all) {
                return i >= all.size() || context_.poller.add_listener(all[i].fd(), i);
            });
            until = goes_on ? SteadyTime{} : now + kRest;
        }
        if (until != SteadyTime{}) next = std::min(next, until);
    }
    return next;
}

void Intake::on_ready() {
    Poller& poller = context_.poller;
    if (poller.takers() > context_.options.max_connections) return;
    poller.enter();
    try {
        if (context_.pool.submit(&poller)) return;
    } catch (const std::exception& error) {  // no memory
        log::error("connections are closed after an error: ", error.what());
    }
    // No thread will come: closes connections that need one. Waiting handlers still learn that their clients are gone.
    while (const auto ready = poller.take(milliseconds(0))) {
        const auto connection = context_.connections.find(ready->id);
        if (connection == nullptr) continue;
        if (connection->take()) {
            context_.connections.drop(connection);
        } else if (ready->hung_up) {
            ConnectionTable::report_gone(*connection);
        }
    }
    poller.leave();
}

void Intake::welcome(Accepted accepted) {
    Counters::add(context_.counters.accepted, 1);
    if (accepted.loopback) {
        const PeerUsers::User user = context_.users.of(accepted.fd.get());
        accepted.peer.uid = user.uid;
        accepted.peer.uid_error = user.error;
    }
    auto stream = make_stream(std::move(accepted.fd), accepted.peer);
    auto connection = std::make_shared<Connection>(next_id_++, std::move(stream), std::move(accepted.peer));
    const Peer& peer = connection->peer;
    connection->source = peer.uid ? peer.ip + " uid:" + std::to_string(*peer.uid) : peer.ip;
    connection->trusted = context_.handler.trusts(peer);
    connection->state.store(Connection::State::active, std::memory_order_relaxed);
    ConnectionTable& table = context_.connections;
    const bool first = table.empty();
    using Place = ConnectionTable::Place;
    if (const Place place = table.add(connection, accepted.loopback); place != Place::taken)
        return reject(connection, place == Place::none);
    if (!context_.poller.add(connection->stream->fd(), connection->id, Poller::For::hangup))
        return table.drop(connection);
    if (first) context_.poller.wake();  // on_tick() is only called while there are connections
    connection->stream->set_linger(context_.options.spin);
    table.park(connection, Waiting::idle);
}

std::unique_ptr<Stream> Intake::make_stream(ProcessFd fd, const Peer& peer) const {
    const auto tls = context_.tls.with([](const auto& held) { return held; });
    if (tls == nullptr || peer.unix_socket) return std::make_unique<Stream>(std::move(fd));
    return tls->accept(std::move(fd), plain_);
}

/// Whether the client has sent a whole request that is not about the server's health. Reads nothing.
bool Intake::has_sent_other_request(const Connection& connection) const {
    if (connection.stream->is_tls()) return false;
    std::array<char, 4096> bytes;
    const ssize_t size = ::recv(connection.stream->fd(), bytes.data(), bytes.size(), MSG_PEEK | MSG_DONTWAIT);
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

/// Trusted clients get a moment to read the answer. If the server is full (`may_ask`), they may send a request first:
/// a request about the server's health is answered, any other gets 503. Without that, a TLS client gets no answer,
/// since it would need a handshake first.
void Intake::reject(const std::shared_ptr<Connection>& connection, bool may_ask) {
    connection->rejected = true;
    const bool may_linger = connection->trusted && (may_ask || !connection->stream->is_tls());
    // A client that has asked for something else is answered now, so it takes no place from a health check.
    if (!may_linger || (may_ask && has_sent_other_request(*connection)) || !make_room_among_rejected())
        return reject(*connection->stream, too_many_);
    Counters::add(context_.counters.rejected, 1);
    ConnectionTable& table = context_.connections;
    table.add_rejected(connection);
    if (!context_.poller.add(connection->stream->fd(), connection->id, Poller::For::hangup))
        return table.drop(connection);
    if (may_ask) {
        connection->head_deadline = std::chrono::steady_clock::now() + ConnectionTable::kLingeringClose;
        return table.park(connection, Waiting::head);
    }
    write_now(*connection->stream, too_many_);
    connection->stream->finish_writing();
    table.park(connection, Waiting::lingering_close);
}

/// Ends the oldest rejected connection if there are too many. False if all of them are being served.
bool Intake::make_room_among_rejected() {
    if (!context_.connections.too_many_rejected()) return true;
    const auto oldest = context_.connections.take_oldest_rejected();
    if (oldest != nullptr) expire(oldest);
    return oldest != nullptr;
}

/// Waits for nothing. Reads what the client has sent, since closing with unread bytes would send a reset, and the
/// client could lose the answer.
void Intake::reject(Stream& stream, const std::string& answer) {
    Counters::add(context_.counters.rejected, 1);
    write_now(stream, answer);
    stream.finish_writing();
    std::array<char, 16 << 10> unread;
    stream.read(unread.data(), unread.size(), Stream::Wait::none);
}

void Intake::expire(const std::shared_ptr<Connection>& connection) {
    const bool owes_request = connection->waiting.load() == Waiting::head;
    if (owes_request && !context_.draining.load(std::memory_order_relaxed)) {
        context_.handler.rejected(connection->rejected ? 503 : 408);
        write_now(*connection->stream, connection->rejected ? too_many_ : too_slow_);
    }
    context_.connections.drop(connection);
}

SteadyTime Intake::on_tick(SteadyTime now) {
    const auto& options = context_.options;
    const milliseconds shortest =
        std::min({options.idle_timeout, options.header_timeout, ConnectionTable::kLingeringClose});
    const milliseconds tick = std::clamp(shortest / 4, milliseconds(1), milliseconds(250));  // a deadline may be late
    const SteadyTime next = context_.connections.empty() ? SteadyTime::max() : now + tick;
    for (const auto& connection :
         context_.connections.take_expired(now, context_.draining.load(std::memory_order_relaxed)))
        expire(connection);
    return std::min(next, resume_listeners(now));
}

}  // namespace shared_tensor::net
