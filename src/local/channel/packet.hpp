#pragma once

#include <sys/types.h>

#include <cstddef>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "base/concurrency/guarded.hpp"
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

/// Sends packets through one socket in order, and queues packets while the peer does not read.
/// Thread safety: any thread may call any method; none blocks.
class Outbox {
public:
    explicit Outbox(std::size_t max_waiting_bytes) : max_waiting_bytes_(max_waiting_bytes) {}

    /// Returns Sent::not_now if packets are queued: call flush() when the socket is writable. Returns Sent::gone if the
    /// peer is gone, the queue has reached its limit or the packet is beyond the limits above: close the socket.
    Sent send(int socket, OutgoingPacket packet);
    Sent flush(int socket);

private:
    struct Waiting {
        std::deque<OutgoingPacket> packets;
        std::size_t bytes = 0;
    };
    static Sent drain(Waiting& waiting, int socket);

    const std::size_t max_waiting_bytes_;
    Guarded<Waiting> waiting_;
};

/// The process at the other end of a socket, as identified by the kernel. Ids are in this process's namespaces; pid 0:
/// the peer is in a PID namespace that is not visible here.
struct Peer {
    pid_t pid = 0;
    uid_t uid = 0;
    gid_t gid = 0;
};
/// Reads SO_PEERCRED. Throws std::system_error.
Peer peer_of(int socket);

/// Returns a descriptor that becomes readable when the peer's process ends, even if another process holds the peer's
/// end of the socket. Empty if the kernel provides none: then only the end of the socket shows the end of the process.
UniqueFd process_of(int socket, const Peer& peer);

}  // namespace shared_tensor::local
