#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/concurrency/clock.hpp"
#include "base/concurrency/guarded.hpp"
#include "base/system/fork.hpp"
#include "base/system/unix_listener.hpp"
#include "local/channel/packet.hpp"

namespace shared_tensor::local {

/// The id of a channel. Ids are never reused.
using ChannelId = std::uint64_t;

/// Handles the events of a server's channels. Called on the server's own thread, one call at a time. Must not block or
/// throw. May call the server.
class ChannelHandler {
public:
    virtual ~ChannelHandler() = default;
    /// Return false to close the channel at once, without a call of closed().
    virtual bool opened(ChannelId channel, const Peer& peer) = 0;
    /// An empty text means that the packet was too big: its bytes are lost, and the channel is closed next.
    virtual void received(ChannelId channel, Packet packet) = 0;
    /// The last event of each opened channel: the peer's process ended, the peer closed its end or sent an invalid
    /// packet, or the server closed the channel.
    virtual void closed(ChannelId channel) = 0;
};

struct ChannelServerOptions {
    std::string path;                 ///< of the socket file: made with mode 0600, removed at the end
    std::size_t max_channels = 1024;  ///< beyond that limit the oldest new channel is closed, else the further one
    std::size_t max_waiting_bytes = std::size_t{1} << 20;  ///< queue for a peer that does not read; then it is closed
    /// A channel is new until settled() is called for it. A new channel is closed after `settle_within`; beyond
    /// `max_new` new channels, the oldest new channel is closed for the next one.
    std::size_t max_new = 256;
    std::chrono::milliseconds settle_within{10'000};
};

/// The server's end of the local channels to processes of this host. Sends and receives packets with file descriptors,
/// and detects the end of a process at once. One thread serves all channels.
/// Thread safety: any thread may call any method, but none after the destructor has begun.
class ChannelServer {
public:
    /// Listens. `handler` must outlive it. Throws std::system_error with the path.
    ChannelServer(ChannelServerOptions options, ChannelHandler& handler);
    ~ChannelServer() { stop(); }

    void start();
    /// Closes all channels. No event is called after it returns. Must not be called from the handler.
    void stop();
    /// Never blocks. Returns false if the channel is closed.
    bool send(ChannelId id, OutgoingPacket packet);
    /// Marks a channel as used: it is no longer new.
    void settled(ChannelId id);
    /// Closes a channel soon; ChannelHandler::closed() is called then.
    void close(ChannelId id);
    std::size_t size() const;
    const std::string& path() const { return listener_.path(); }

private:
    struct Connection;
    using ConnectionPointer = std::shared_ptr<Connection>;  // shared by the loop and by running calls of send()

    void watch(int operation, int fd, std::uint32_t events, std::uint64_t key) const;
    void want_to_write(ChannelId id, const Connection& connection, bool wanted) const;
    ConnectionPointer find(ChannelId id) const;
    void serve(const std::stop_token& stop);
    int timeout() const;
    std::optional<std::pair<ChannelId, SteadyTime>> oldest_new() const;
    void close_overdue();
    bool make_room();
    void handle(std::uint64_t key, std::uint32_t events);
    void serve_channel(ChannelId id, std::uint32_t events);
    bool flush(ChannelId id, Connection& connection) const;
    void accept_some();
    void open(ProcessFd socket);
    void drop(ChannelId id);
    void forget(ChannelId id);

    const ChannelServerOptions options_;
    ChannelHandler& handler_;
    const UnixListener listener_;
    UniqueFd epoll_, wake_;
    Guarded<std::unordered_map<ChannelId, ConnectionPointer>> channels_;
    Guarded<std::map<ChannelId, SteadyTime>> new_;  // with the times until which they must be settled
    ChannelId next_id_ = 1;                         // used only by the loop, like accepting_ and complained_
    bool accepting_ = true, complained_ = false;
    std::jthread thread_;
};

}  // namespace shared_tensor::local
