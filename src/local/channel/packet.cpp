#include "local/channel/packet.hpp"

#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "base/bytes/check.hpp"
#include "base/system/host.hpp"

namespace shared_tensor::local {

namespace {

/// Room for the descriptors, and for credentials that a peer may add.
constexpr std::size_t kControlBytes = CMSG_SPACE(sizeof(int) * kMaxPacketDescriptors) + 256;

constexpr int kPeerPidfd = 77;  // SO_PEERPIDFD, since Linux 6.5; the headers of many machines are older

/// A descriptor counts too, because it may keep a segment alive.
std::size_t weight(const OutgoingPacket& packet) {
    constexpr std::size_t kDescriptor = 1024;
    return packet.text.size() + packet.descriptors.size() * kDescriptor;
}

/// Takes all descriptors, also of a rejected packet: the kernel has opened them in this process already.
void take_descriptors(msghdr& message, std::vector<UniqueFd>& taken) {
    for (cmsghdr* part = CMSG_FIRSTHDR(&message); part != nullptr; part = CMSG_NXTHDR(&message, part)) {
        if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
        const std::size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (std::size_t i = 0; i < count; ++i) {
            int fd = -1;
            std::memcpy(&fd, CMSG_DATA(part) + i * sizeof fd, sizeof fd);
            taken.emplace_back(fd);
        }
    }
}

bool is_allowed(const OutgoingPacket& packet) {
    return !packet.text.empty() && packet.text.size() <= kMaxPacketBytes &&
           packet.descriptors.size() <= kMaxPacketDescriptors;
}

}  // namespace

Sent send_packet(int socket, const OutgoingPacket& packet) {
    if (!is_allowed(packet)) throw std::length_error("a packet of the local channel is empty or too big");
    iovec text{const_cast<char*>(packet.text.data()), packet.text.size()};  // NOLINT: sendmsg() does not write
    alignas(cmsghdr) std::array<char, kControlBytes> control{};
    msghdr message{};
    message.msg_iov = &text;
    message.msg_iovlen = 1;
    if (!packet.descriptors.empty()) {
        const std::size_t bytes = packet.descriptors.size() * sizeof(int);
        message.msg_control = control.data();
        message.msg_controllen = CMSG_SPACE(bytes);
        cmsghdr* part = CMSG_FIRSTHDR(&message);
        part->cmsg_level = SOL_SOCKET;
        part->cmsg_type = SCM_RIGHTS;
        part->cmsg_len = CMSG_LEN(bytes);
        unsigned char* out = CMSG_DATA(part);
        for (const auto& descriptor : packet.descriptors) {
            const int fd = descriptor->get();
            std::memcpy(out, &fd, sizeof fd);
            out += sizeof fd;
        }
    }
    for (;;) {
        if (::sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0) return Sent::yes;
        if (errno == EINTR) continue;
        return errno == EAGAIN || errno == ENOBUFS ? Sent::not_now : Sent::gone;
    }
}

Got receive_packet(int socket, Packet& packet) {
    packet = {};
    std::array<char, kMaxPacketBytes> buffer;  // not filled: most packets are short
    iovec text{buffer.data(), buffer.size()};
    alignas(cmsghdr) std::array<char, kControlBytes> control{};
    msghdr message{};
    message.msg_iov = &text;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    ssize_t got = -1;
    do {
        got = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    } while (got < 0 && errno == EINTR);
    if (got < 0) return errno == EAGAIN ? Got::nothing : Got::end;
    take_descriptors(message, packet.descriptors);
    const bool fewer = (message.msg_flags & MSG_CTRUNC) != 0;
    const bool too_many = fewer && packet.descriptors.size() >= kMaxPacketDescriptors;
    const bool cut = too_many || (message.msg_flags & MSG_TRUNC) != 0;
    // An empty packet looks like the end of the peer, so send_packet() never sends one.
    if (got == 0 || cut) {
        packet = {};
        return cut ? Got::too_big : Got::end;
    }
    packet.lost_descriptors = fewer;
    packet.text.assign(buffer.data(), static_cast<std::size_t>(got));
    return Got::packet;
}

// Packets are sent under the lock, which keeps their order. This is allowed because sending never blocks.

Sent Outbox::send(int socket, OutgoingPacket packet) {
    if (!is_allowed(packet)) return Sent::gone;
    return waiting_.with([&](Waiting& waiting) {
        waiting.bytes += weight(packet);
        waiting.packets.push_back(std::move(packet));
        const Sent sent = drain(waiting, socket);
        return waiting.bytes > max_waiting_bytes_ ? Sent::gone : sent;
    });
}

Sent Outbox::flush(int socket) {
    return waiting_.with([&](Waiting& waiting) { return drain(waiting, socket); });
}

Sent Outbox::drain(Waiting& waiting, int socket) {
    while (!waiting.packets.empty()) {
        if (const Sent sent = send_packet(socket, waiting.packets.front()); sent != Sent::yes) return sent;
        waiting.bytes -= weight(waiting.packets.front());
        waiting.packets.pop_front();
    }
    return Sent::yes;
}

Peer peer_of(int socket) {
    ucred credentials{};
    socklen_t size = sizeof credentials;
    SHARED_TENSOR_CHECK_ERRNO(::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &size), "SO_PEERCRED");
    return {credentials.pid, credentials.uid, credentials.gid};
}

UniqueFd process_of(int socket, const Peer& peer) {
    int fd = -1;
    socklen_t size = sizeof fd;
    if (::getsockopt(socket, SOL_SOCKET, kPeerPidfd, &fd, &size) == 0) return UniqueFd(fd);
    // The pid may have been reused by another process. Then the end of the socket still shows the end of the peer.
    return process_descriptor(peer.pid);
}

}  // namespace shared_tensor::local
