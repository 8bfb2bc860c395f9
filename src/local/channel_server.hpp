#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "local/packet.hpp"
#include "local/peer.hpp"

namespace shared_tensor::local {

/// Of one connection; never used again.
using ChannelId = std::uint64_t;

/// What a server does with its channels. Called on the server's own thread, one call at a time; must not block or
/// throw. May call the server.
class ChannelHandler {
public:
    virtual ~ChannelHandler() = default;
    /// False: it is closed at once and not heard of again.
    virtual bool opened(ChannelId channel, const Peer& peer) = 0;
    /// An empty text stands for a packet beyond the bounds: its bytes are lost, and the channel ends after this.
    virtual void received(ChannelId channel, Packet packet) = 0;
    /// The peer's process ended, closed its end, broke the form or was sent away. Once for every opened channel, the
    /// last that is heard of it.
    virtual void closed(ChannelId channel) = 0;
};

struct ChannelServerOptions {
    std::string path;                 ///< of the socket file: made with mode 0600, removed at the end
    std::size_t max_channels = 1024;  ///< one more is closed at once, unless one that is new can go for it
    std::size_t max_waiting_bytes = std::size_t{1} << 20;  ///< for a peer that does not read: then it is closed
    /// A channel is new until settled() was called for it. New ones are closed after `settle_within`, and the oldest of
    /// them for the next channel beyond `max_new`.
    std::size_t max_new = 256;
    std::chrono::milliseconds settle_within{10'000};
};

/// Channels to the processes of this host: packets with file descriptors both ways, and the end of a process at once.
/// One thread for all of them.
/// Thread safety: all methods from any thread, but none after the destructor began.
class ChannelServer {
public:
    /// Listens. `handler` must outlive it. Throws std::system_error that names the path.
    ChannelServer(ChannelServerOptions options, ChannelHandler& handler);
    ~ChannelServer();  ///< stop()

    void start();
    /// Closes all channels; nothing is told after it returns. Not from the handler.
    void stop();
    /// Never blocks. False when the channel is gone.
    bool send(ChannelId channel, OutgoingPacket packet);
    /// The channel is used as it should be: it is new no more.
    void settled(ChannelId channel);
    /// Soon; closed() tells when.
    void close(ChannelId channel);
    std::size_t size() const;
    const std::string& path() const;

private:
    class Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace shared_tensor::local
