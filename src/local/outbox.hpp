#pragma once

#include <cstddef>
#include <deque>

#include "local/packet.hpp"
#include "util/guarded.hpp"

namespace shared_tensor::local {

/// What goes out through one socket, in order, and what waits for a peer that does not read just now.
/// Thread safety: all methods from any thread; none blocks.
class Outbox {
public:
    explicit Outbox(std::size_t max_waiting_bytes) : max_waiting_bytes_(max_waiting_bytes) {}

    enum class State {
        empty,
        waiting,  ///< flush() once the socket takes more
        broken,   ///< the peer is gone or has not read for so long that the bound is reached: close it
    };
    State send(int socket, OutgoingPacket packet);
    State flush(int socket);

private:
    struct Waiting {
        std::deque<OutgoingPacket> packets;
        std::size_t bytes = 0;
    };
    static State drain(Waiting& waiting, int socket);

    const std::size_t max_waiting_bytes_;
    Guarded<Waiting> waiting_;
};

}  // namespace shared_tensor::local
