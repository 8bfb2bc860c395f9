#pragma once

#include <cstddef>
#include <deque>

#include "base/concurrency/guarded.hpp"
#include "local/channel/packet.hpp"

namespace shared_tensor::local {

/// Sends packets through one socket in order, and queues packets while the peer does not read.
/// Thread safety: any thread may call any method; none blocks.
class Outbox {
public:
    explicit Outbox(std::size_t max_waiting_bytes) : max_waiting_bytes_(max_waiting_bytes) {}

    enum class State {
        empty,
        waiting,  ///< packets are queued: call flush() when the socket is writable
        broken,   ///< the peer is gone, or the queue has reached its limit: close the socket
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
