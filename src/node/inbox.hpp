#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>

#include <shared_tensor/node.hpp>

#include "base/concurrency/guarded.hpp"
#include "protocol/codec/value.hpp"

namespace shared_tensor {

struct NodeMessage::Content {
    std::string name;
    codec::TensorPointer tensor;
};

namespace node {

/// A bounded queue of messages. Thread safety: all methods from any thread; only take() blocks.
class Inbox {
public:
    Inbox(std::size_t max_messages, std::uint64_t max_bytes) : max_messages_(max_messages), max_bytes_(max_bytes) {}

    /// False if the inbox is full or closed. An empty inbox accepts one message of any size.
    bool put(NodeMessage::Content message);
    /// Whether put() would accept a message of `bytes` bytes now.
    bool has_room(std::uint64_t bytes) const;
    std::optional<NodeMessage> take(std::chrono::milliseconds timeout);
    /// Wakes all threads in take(), drops all messages and rejects new ones.
    void close();

    std::size_t size() const;
    std::uint64_t rejected() const;

private:
    struct State {
        std::deque<std::shared_ptr<const NodeMessage::Content>> waiting;
        std::uint64_t bytes = 0, rejected = 0;
        bool closed = false;
    };
    bool has_room(const State& state, std::uint64_t bytes) const;

    const std::size_t max_messages_;
    const std::uint64_t max_bytes_;
    Guarded<State> state_;
};

}  // namespace node
}  // namespace shared_tensor
