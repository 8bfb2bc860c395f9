#include "local/channel/outbox.hpp"

#include <utility>

namespace shared_tensor::local {

namespace {

/// A descriptor counts too, because it may keep a segment alive.
std::size_t weight(const OutgoingPacket& packet) {
    constexpr std::size_t kDescriptor = 1024;
    return packet.text.size() + packet.descriptors.size() * kDescriptor;
}

}  // namespace

// Packets are sent under the lock, which keeps their order. This is allowed because sending never blocks.

Outbox::State Outbox::send(int socket, OutgoingPacket packet) {
    return waiting_.with([&](Waiting& waiting) {
        waiting.bytes += weight(packet);
        waiting.packets.push_back(std::move(packet));
        const State state = drain(waiting, socket);
        return waiting.bytes > max_waiting_bytes_ ? State::broken : state;
    });
}

Outbox::State Outbox::flush(int socket) {
    return waiting_.with([&](Waiting& waiting) { return drain(waiting, socket); });
}

Outbox::State Outbox::drain(Waiting& waiting, int socket) {
    while (!waiting.packets.empty()) {
        switch (send_packet(socket, waiting.packets.front())) {
            case Sent::yes: break;
            case Sent::not_now: return State::waiting;
            case Sent::gone: return State::broken;
        }
        waiting.bytes -= weight(waiting.packets.front());
        waiting.packets.pop_front();
    }
    return State::empty;
}

}  // namespace shared_tensor::local
