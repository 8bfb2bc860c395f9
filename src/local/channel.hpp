#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "local/packet.hpp"
#include "local/peer.hpp"
#include "util/process_fd.hpp"
#include "util/process_mark.hpp"

namespace shared_tensor::local {

/// A client's end of a channel: a thread of its own receives.
/// Thread safety: all methods from any thread but the destructor. In a process forked from the one that connected
/// nothing is sent and nothing comes: the channel is the parent's.
class Channel {
public:
    struct Events {
        std::function<void(Packet)> received;  ///< on the channel's thread; must not block for long
        std::function<void()> ended;           ///< there too, once, the last: the peer is gone. Not after close()
    };
    /// Connects and begins to receive. Throws std::system_error that names the path.
    Channel(const std::string& path, Events events);
    ~Channel();  ///< close()

    /// False when the peer is gone, or has not read for `patience`. Blocks no longer than that.
    bool send(const OutgoingPacket& packet, std::chrono::milliseconds patience = std::chrono::seconds(2));
    /// No event is told after it returns. Not to be called by an event.
    void close();
    /// The process that listens.
    const Peer& peer() const { return peer_; }

private:
    void receive();

    const Events events_;
    const ProcessMark process_;
    ProcessFd socket_;
    const Peer peer_;
    ProcessFd stop_;
    std::atomic<bool> gone_{false};
    std::unique_ptr<std::jthread> thread_;
};

}  // namespace shared_tensor::local
