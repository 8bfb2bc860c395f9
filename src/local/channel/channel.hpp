#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "base/system/process_fd.hpp"
#include "base/system/process_mark.hpp"
#include "local/channel/packet.hpp"

namespace shared_tensor::local {

/// A client's end of a local channel. It has its own thread, which receives packets.
/// Thread safety: any thread may call any method, but not the destructor. In a forked child it sends and receives
/// nothing, because the channel belongs to the parent.
class Channel {
public:
    struct Events {
        std::function<void(Packet)> received;  ///< called on the channel's thread; must not block for long
        std::function<void()> ended;           ///< called there once, last, when the peer is gone; not after close()
    };
    /// Connects and starts to receive. Throws std::system_error with the path.
    Channel(const std::string& path, Events events);
    ~Channel();  ///< close()

    /// Returns false if the peer is gone, or does not read for `patience`. Blocks for at most `patience`.
    bool send(const OutgoingPacket& packet, std::chrono::milliseconds patience = std::chrono::seconds(2));
    /// Closes the channel. No event is called after it returns. Must not be called from an event.
    void close();
    /// The server's process.
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
