#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <variant>
#include <vector>

#include "base/concurrency/guarded.hpp"
#include "local/channel/channel.hpp"
#include "protocol/json_rpc/message.hpp"

namespace shared_tensor::client {

/// The local channel could not be opened, or has ended. what() gives the reason.
class ChannelGone : public std::runtime_error {
public:
    using std::runtime_error::runtime_error;
};

/// JSON-RPC over the local channel: requests to the server, and notifications in both directions.
/// Thread safety: all methods from any thread, but none from `heard`.
class ChannelClient {
public:
    using Heard = std::function<void(const json_rpc::Request&)>;
    /// Connects. Throws ChannelGone. On the channel's thread, `heard` is called for each notification, and `ended` once
    /// when the channel ends.
    ChannelClient(const std::string& path, Heard heard, std::function<void()> ended);
    ~ChannelClient();

    struct Answer {
        json_rpc::Json result;
        std::vector<UniqueFd> descriptors;
    };
    /// Sends a request and returns its answer. Blocks, for about 10 s at most. Throws ChannelGone if no answer came,
    /// and the server's error as json_rpc::Error.
    Answer ask(const std::string& method, json_rpc::Json params,
               std::vector<std::shared_ptr<const UniqueFd>> descriptors = {});
    /// Sends a notification. Returns false if the channel has ended.
    bool tell(const std::string& method, json_rpc::Json params);
    bool is_gone() const;
    /// The server's process.
    const local::Peer& peer() const { return channel_->peer(); }

private:
    using Promise = std::promise<std::variant<Answer, json_rpc::Error>>;
    struct State {
        std::uint64_t next_id = 1;
        bool gone = false;
        std::unordered_map<std::uint64_t, Promise> waiting;
    };
    void received(local::Packet packet);
    void end();

    const Heard heard_;
    const std::function<void()> ended_;
    Guarded<State> state_;
    std::unique_ptr<local::Channel> channel_;  // last: its thread uses the other members
};

}  // namespace shared_tensor::client
