#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <vector>

#include "json_rpc/message.hpp"
#include "local/channel.hpp"
#include "util/guarded.hpp"

namespace shared_tensor::client {

/// The local channel cannot be had, or is gone, with the reason for people.
class ChannelGone : public std::runtime_error {
public:
    using std::runtime_error::runtime_error;
};

/// JSON-RPC over the local channel: questions with answers, and notifications in both directions.
/// Thread safety: all methods from any thread, but none from `heard`.
class ChannelClient {
public:
    using Heard = std::function<void(const json_rpc::Request&)>;
    /// Throws ChannelGone. `heard` is told of notifications on the channel's thread, `ended` once of its end.
    ChannelClient(const std::string& path, Heard heard, std::function<void()> ended);
    ~ChannelClient();

    struct Answer {
        json_rpc::Json result;
        std::vector<UniqueFd> descriptors;
    };
    /// Blocks until the answer is there. Throws ChannelGone, also when none came in time, and the server's error as
    /// json_rpc::Error.
    Answer ask(const std::string& method, json_rpc::Json params,
               std::vector<std::shared_ptr<const UniqueFd>> descriptors = {});
    /// False when the channel is gone.
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
    std::unique_ptr<local::Channel> channel_;  // last: its thread uses the rest
};

}  // namespace shared_tensor::client
