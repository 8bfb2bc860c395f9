#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "http/gone_watch.hpp"
#include "http/head_parser.hpp"
#include "http/message.hpp"
#include "http/wire.hpp"
#include "util/budget.hpp"
#include "util/clock.hpp"

namespace shared_tensor::http {

/// One client's connection. It is either parked (the poller waits for its next byte and for its deadline) or active
/// (one thread of the pool serves it); only the present owner touches the plain members. The hand-over is `state`
/// followed by epoll_ctl one way, and the one-shot event the other way.
class Connection : public std::enable_shared_from_this<Connection> {
public:
    enum class State { parked, active };
    enum class Waiting {
        idle,     ///< for the first byte of a request
        head,     ///< for the rest of a head, until the deadline that its first byte set
        goodbye,  ///< for the client's end of stream, after an answer that left a body unread
    };

    Connection(std::uint64_t number, std::unique_ptr<Wire> bytes, Peer who)
        : id(number), wire(std::move(bytes)), peer(std::move(who)) {}

    const std::uint64_t id;
    const std::unique_ptr<Wire> wire;
    std::atomic<State> state{State::parked};

    Peer peer;
    std::string
        source;  ///< by which connections of one client are counted: its address, and its user where that is known
    bool trusted = true;                ///< takes no place of those for clients that have not shown who they are
    std::shared_ptr<Budget> principal;  ///< of the client of its last request: `place` counts there
    Budget::Share place;
    bool certificate_pending = true;  ///< the peer's certificate is looked at before the first request
    Waiting waiting = Waiting::idle;
    SteadyTime deadline{};       ///< of being parked
    SteadyTime head_deadline{};  ///< set by the first byte of a request
    std::string leftover;        ///< the part of a head that was read before it was parked
    HeadScan scan;
    bool empty_line_skipped = false;
    std::size_t goodbye_bytes = 0;
    bool refused = false;  ///< one too many: takes no place from those that are served, and is told so

    GoneWatch gone_watch;  ///< of the poller, for Exchange::on_client_gone
};

}  // namespace shared_tensor::http
