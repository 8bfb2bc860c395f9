#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "util/unique_fd.hpp"

namespace shared_tensor::local {

/// What one packet may hold. A receiver sees all of a packet's text or nothing of it.
inline constexpr std::size_t kMaxPacketBytes = 64 << 10;
inline constexpr std::size_t kMaxPacketDescriptors = 64;

/// A message as it came, with descriptors of our own.
struct Packet {
    std::string text;
    std::vector<UniqueFd> descriptors;
    bool lost_descriptors = false;  ///< there were more, and this process had no room for them (EMFILE)
};

/// A message as it goes; its descriptors stay open until it is gone, shared with whoever else needs them.
struct OutgoingPacket {
    std::string text;
    std::vector<std::shared_ptr<const UniqueFd>> descriptors;
};

enum class Sent {
    yes,
    not_now,  ///< the peer has not read enough of what was sent before
    gone,     ///< the peer is gone, or the packet is none that can be sent
};
/// Never blocks. Throws std::length_error for a packet beyond the bounds above.
Sent send_packet(int socket, const OutgoingPacket& packet);

enum class Got {
    packet,
    nothing,  ///< no packet is there yet
    too_big,  ///< beyond the bounds above; it was dropped, and its descriptors closed
    end,      ///< the peer is gone, or sent an empty packet, which looks the same
};
/// Never blocks.
Got receive_packet(int socket, Packet& packet);

}  // namespace shared_tensor::local
