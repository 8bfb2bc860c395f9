#pragma once

// A server and a client in one process: publishes tensors for other nodes, pulls theirs, and sends to them.
//
//     Node node;                                              // serves on a port of the kernel's choice
//     node.publish("weights", state_dict);
//     NamedTensor theirs = node.pull("http://other:2537", "weights");
//     node.push("http://other:2537", "batch", x);             // into the inbox of the other node
//     if (auto message = node.receive(1s)) use(message->name(), message->tensor());

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <shared_tensor/client.hpp>
#include <shared_tensor/registry.hpp>
#include <shared_tensor/server.hpp>
#include <shared_tensor/tensors.hpp>

namespace shared_tensor {

struct NodeOptions {
    NodeOptions() {
        server.port = 0;
        server.http.idle_timeout = std::chrono::minutes(6);  // longer than the others' connections are kept
        client.connections = 10;
        client.idle_limit = std::chrono::minutes(5);
        client.min_shared_bytes = std::size_t{1} << 20;  // each message takes memory of its own: see benchmarks
    }
    /// Port 0: the kernel chooses. With TLS on host 0.0.0.0 or ::, the certificate has to name 127.0.0.1 or ::1 too:
    /// publish() goes there.
    ServerOptions server;
    /// Of each other node, whose url takes the place of this one: 10 connections at once, kept for 5 minutes unused.
    ClientOptions client;
    std::size_t max_peers = 100;                         ///< other nodes that are remembered; the longest unused go
    std::size_t inbox_messages = 1'000;                  ///< that wait for receive(); further ones are refused
    std::uint64_t inbox_bytes = std::uint64_t{1} << 30;  ///< likewise, of their tensors
    std::chrono::milliseconds push_timeout{30'000};      ///< of a push whose receiver's inbox is full
};

/// What a node did since it was made.
struct NodeStatistics {
    std::uint64_t published = 0, pulled = 0, pushed = 0, received = 0;
    std::uint64_t failed = 0;   ///< of publish, pull and push
    std::uint64_t refused = 0;  ///< messages of others, for the inbox was full; they may have come again
    std::size_t waiting = 0;    ///< in the inbox
    std::size_t peers = 0;
};

/// What another node has pushed. Ownership: a handle; copies share the tensor, which may be kept without it.
class NodeMessage {
public:
    const std::string& name() const;
    const TensorRef& tensor() const;

    struct Content;
    explicit NodeMessage(std::shared_ptr<const Content> content) : content_(std::move(content)) {}

private:
    std::shared_ptr<const Content> content_;
};

/// Thread safety: all methods from any thread, but the destructor. Blocking: publish(), pull() and push() until it is
/// done; receive() as long as it is told.
/// Errors: RpcError's children: TransportFailure where nobody answers, ProtocolFailure where somebody else does,
/// UnknownOrExpired for what is not there, or was and is not any more, TensorExpired for what went while it was
/// fetched, MethodNotFound for a push to a server that is no node, ServerBusy for one whose inbox stays full,
/// ShuttingDown after shutdown(). std::invalid_argument for a url that is none, or empty.
class Node {
public:
    /// Serves at once, `registry` besides. Throws what Server throws.
    explicit Node(NodeOptions options = {}, Registry registry = {});
    ~Node();  ///< shutdown()
    Node(const Node&) = delete;
    Node& operator=(const Node&) = delete;

    std::string url() const;  ///< where others on this host reach it; with host 0.0.0.0 they need the host's name
    int port() const;

    /// Others may pull it from now on. As NamedTensors::put().
    Published publish(std::string_view name, const TensorRef& tensor, const PutOptions& options = {}) const {
        return done([&](const NamedTensors& own) { return own.put(name, tensor, options); });
    }
    /// A set, published in one step.
    template <detail::NamedTensorRange Tensors>
    Published publish(std::string_view name, const Tensors& tensors, const PutOptions& options = {}) const {
        return done([&](const NamedTensors& own) { return own.put(name, tensors, options); });
    }

    /// What another node (or any server) has under that name: through shared memory on the same host, in parallel
    /// ranges from others.
    NamedTensor pull(const std::string& url, std::string_view name, const PullOptions& options = {}) const;

    /// Into the inbox of the node at `url`: returns when it is there. A tensor of empty_shared() may be
    /// filled anew then. While the inbox is full it is tried again, until push_timeout.
    void push(const std::string& url, std::string_view name, const TensorRef& tensor) const;

    /// The oldest message in the inbox; nothing when the time is over first, or after shutdown(). Each message is
    /// received once. Messages of one sender that pushes one after another come in that order.
    std::optional<NodeMessage> receive(std::chrono::milliseconds timeout) const;

    /// Ends all that is in flight, with ShuttingDown, and serves no more. Blocks until the server has ended. May be
    /// called again.
    void shutdown();

    NodeStatistics statistics() const;
    /// What passed between this node and each other one that it remembers, by url; of itself, what publish() took.
    std::map<std::string, ClientStatistics> peers() const;

private:
    class Impl;
    template <class Publish>
    Published done(Publish publish) const {
        Published published;
        run([&] { published = publish(own()); });
        return published;
    }
    void run(const std::function<void()>& publish) const;
    NamedTensors own() const;

    std::unique_ptr<Impl> impl_;
};

}  // namespace shared_tensor
