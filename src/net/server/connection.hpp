#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "base/concurrency/budget.hpp"
#include "base/concurrency/clock.hpp"
#include "net/message/head_parser.hpp"
#include "net/message/message.hpp"
#include "net/server/gone_watch.hpp"
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

    GoneWatch gone_watch;  ///< for ResponseStream::on_client_gone
};

}  // namespace shared_tensor::net
