#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "base/system/unique_fd.hpp"

namespace shared_tensor::local {

/// Limits of a packet. A receiver gets the whole text of a packet or nothing.
inline constexpr std::size_t kMaxPacketBytes = 64 << 10;
inline constexpr std::size_t kMaxPacketDescriptors = 64;

/// A received packet. It owns its descriptors.
struct Packet {
    std::string text;
    std::vector<UniqueFd> descriptors;
    bool lost_descriptors = false;  ///< some descriptors are lost: the process has too many open files (EMFILE)
};

/// A packet to send. Its descriptors are shared with their other users, and stay open until the packet is sent.
struct OutgoingPacket {
    std::string text;
    std::vector<std::shared_ptr<const UniqueFd>> descriptors;
};

enum class Sent {
    yes,
    not_now,  ///< the socket's buffer is full: the peer must read first
    gone,     ///< the peer is gone, or the packet cannot be sent
};
/// Never blocks. Throws std::length_error for an empty packet, or beyond the limits above.
Sent send_packet(int socket, const OutgoingPacket& packet);

enum class Got {
    packet,
    nothing,  ///< there is no packet yet
    too_big,  ///< beyond the limits above; the packet was dropped and its descriptors were closed
    end,      ///< the peer is gone, or sent an empty packet, which looks the same
};
/// Never blocks.
Got receive_packet(int socket, Packet& packet);

}  // namespace shared_tensor::local
