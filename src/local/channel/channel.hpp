#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <span>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "base/concurrency/clock.hpp"
#include "base/concurrency/guarded.hpp"
#include "base/system/fork.hpp"
#include "local/channel/packet.hpp"
#include "protocol/json_rpc/message.hpp"

namespace shared_tensor::local {

/// Reads the request or notification in a packet. Returns the response that rejects the packet if it has none.
std::variant<json_rpc::Request, json_rpc::Response> read_request(const Packet& packet);

/// A notification with the parameters {"`list`": `ids`}.
OutgoingPacket notification(const char* method, const char* list, std::span<const std::string> ids);

/// The local channel could not be opened, or has ended. what() gives the reason.
class ChannelGone : public std::runtime_error {
public:
    using std::runtime_error::runtime_error;
};

/// While it lives, its thread waits on local channels until `deadline` at most, and no longer when `stop` (of the call
/// that needs the channel) or `end` (of its client) is requested. Of nested limits the inner one holds.
class WaitLimit {
public:
    WaitLimit(SteadyTime deadline, std::stop_token stop, std::stop_token end = {})
        : deadline_(deadline), stop_(std::move(stop)), end_(std::move(end)), outer_(std::exchange(innermost_, this)) {}
    WaitLimit(const WaitLimit&) = delete;
    WaitLimit& operator=(const WaitLimit&) = delete;
    ~WaitLimit() { innermost_ = outer_; }

    /// The sooner of the thread's limit and `deadline`.
    static SteadyTime deadline(SteadyTime deadline) {
        return innermost_ == nullptr ? deadline : std::min(deadline, innermost_->deadline_);
    }
    static std::stop_token stop() { return innermost_ == nullptr ? std::stop_token() : innermost_->stop_; }
    static std::stop_token end() { return innermost_ == nullptr ? std::stop_token() : innermost_->end_; }
    static bool is_stopped() { return stop().stop_requested() || end().stop_requested(); }
    static bool is_over() { return is_stopped() || deadline(SteadyTime::max()) <= real_clock().now(); }

private:
    inline static thread_local const WaitLimit* innermost_ = nullptr;
    const SteadyTime deadline_;
    const std::stop_token stop_, end_;
    const WaitLimit* const outer_;
};

/// A client's end of a local channel: requests to the server, and notifications in both directions. It has its own
/// thread, which receives packets.
/// Thread safety: any thread may call any method, but not the destructor. In a forked child it sends and receives
/// nothing, because the channel belongs to the parent.
class Channel {
public:
    /// Called on the channel's thread. Must not block for long, nor call ask() or close().
    struct Events {
        std::function<void(const json_rpc::Request&)> notified;
        std::function<void()> ended;  ///< called once, last, when the server is gone; not after close()
        /// The result of a request that ask() no longer waits for.
        std::function<void(const json_rpc::Json& result)> came_too_late{};
    };
    /// Connects and starts to receive. Throws ChannelGone with the path.
    Channel(const std::string& path, Events events);
    ~Channel();  ///< close()

    struct Answer {
        json_rpc::Json result;
        std::vector<UniqueFd> descriptors;
    };
    /// Sends a request and returns its answer. Blocks, for about 12 s at most, and within the thread's WaitLimit.
    /// Throws ChannelGone if no answer came, and the server's error as json_rpc::Error.
    Answer ask(const std::string& method, json_rpc::Json params,
               std::vector<std::shared_ptr<const UniqueFd>> descriptors = {});
    /// Sends a notification. Returns false if the server is gone, or does not read for 2 s.
    bool tell(const char* method, const char* list, std::span<const std::string> ids);
    bool tell(const char* method, json_rpc::Json params);
    /// Closes the channel. No event is called after it returns.
    void close();
    /// The server's process.
    const Peer& peer() const { return peer_; }

private:
    using Promise = std::promise<std::variant<Answer, json_rpc::Error>>;
    struct State {
        std::uint64_t next_id = 1;
        bool gone = false;
        std::unordered_map<std::uint64_t, Promise> waiting;
    };
    bool send(const OutgoingPacket& packet) const;
    bool forget(std::uint64_t id);
    void receive();
    void received(Packet packet);
    void end();

    const Events events_;
    const ProcessMark process_;
    ProcessFd socket_;
    const Peer peer_;
    ProcessFd stop_;
    Guarded<State> state_;
    std::unique_ptr<std::jthread> thread_;  // last: it uses the other members
};

}  // namespace shared_tensor::local
