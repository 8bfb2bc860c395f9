#pragma once

// A server and a client in one process: publishes tensors, pulls tensors from other nodes, and pushes tensors to them.
//
//     Node node;                                              // serves on a port that the kernel chooses
//     node.publish("weights", state_dict);
//     NamedTensor theirs = node.pull("http://other:2537", "weights");
//     node.push("http://other:2537", "batch", x);             // into the inbox of the other node
//     if (auto message = node.receive(1s)) use(message->name(), message->tensor());

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <shared_tensor/client.hpp>
#include <shared_tensor/registry.hpp>
#include <shared_tensor/server.hpp>
#include <shared_tensor/tensors.hpp>

namespace shared_tensor {

struct NodeOptions {
    NodeOptions() {
        server.port = 0;
        server.http.idle_timeout = std::chrono::minutes(6);  // longer than clients keep their connections (idle_limit)
        client.connections = 10;
        client.idle_limit = std::chrono::minutes(5);
        client.min_shared_bytes = std::size_t{1} << 20;  // each message takes a segment of its own: see benchmarks
    }
    /// Port 0: the kernel chooses. With TLS on host 0.0.0.0 or ::, the certificate must also name 127.0.0.1 or ::1,
    /// because publish() connects there with tensors of a device, and in a forked child.
    ServerOptions server;
    /// For the clients of other nodes; `url` is ignored. If the server has tokens, `token` is one of them: publish()
    /// publishes for its user. Up to 10 connections to each node, closed after 5 idle minutes.
    ClientOptions client;
    std::size_t max_peers = 100;                         ///< known other nodes; the longest unused is dropped first
    std::size_t inbox_messages = 1'000;                  ///< messages in the inbox; more are rejected
    std::uint64_t inbox_bytes = std::uint64_t{1} << 30;  ///< likewise, for the bytes of their tensors
    std::chrono::milliseconds push_timeout{30'000};      ///< how long push() tries again while there is no room
};

/// Counts since the node was made.
struct NodeStatistics {
    std::uint64_t published = 0, pulled = 0, pushed = 0, received = 0;
    std::uint64_t failed = 0;    ///< failed publish(), pull() and push() calls
    std::uint64_t rejected = 0;  ///< messages rejected because the inbox was full; a sender may have repeated them
    std::size_t waiting = 0;     ///< messages in the inbox
    std::size_t peers = 0;
};

/// A message that another node pushed. Ownership: a handle; copies share the tensor, and the tensor may outlive it.
class NodeMessage {
public:
    const std::string& name() const;
    const TensorRef& tensor() const;

    struct Content;
    explicit NodeMessage(std::shared_ptr<const Content> content) : content_(std::move(content)) {}

private:
    std::shared_ptr<const Content> content_;
};

/// A version that another server published, on its way into a server of this process. It is pulled into memory that the
/// readers of this server will share: what an older version had is used again when nobody reads that version any more.
/// It is copied only if that memory cannot be used: see PullOptions::memory and Published::copied.
///
/// Ownership: the server must outlive it. Thread safety: one thread at a time.
class NamedTensorCopy {
public:
    /// Pulls the version that `options` ask for; `options.memory` is not used. `token`: of the user of `server` for
    /// whom the version is published; empty if the server has no tokens. Blocks. Throws as NamedTensors::pull() does.
    /// Errors of `server` itself have texts that begin with "the server of this process": NotAuthorised for a token
    /// that it does not know or that may not publish, InvalidParams for a member of a set, ServerOutOfMemory beyond its
    /// limits, ShuttingDown. Throws std::invalid_argument for rows or a part of a tensor.
    NamedTensorCopy(const Server& server, const std::string& token, const NamedTensors& from, std::string_view name,
                    PullOptions options = {});
    std::uint64_t version() const { return version_; }

    /// Publishes it under the same name and version, with its metadata. Call it once. Throws InvalidParams if the
    /// server has this version or a newer one, or does not take the members' names or the metadata; ServerOutOfMemory
    /// beyond the server's limits, ShuttingDown.
    Published publish();

private:
    server::Services& all_;
    std::string owner_;
    std::optional<NamedTensor> pulled_;  ///< until it is published
    std::uint64_t version_ = 0;
};

/// A server and a client in one process.
///
/// Thread safety: any thread may call any method, but not the destructor. Blocking: publish(), pull() and push() block
/// until they are done; receive() blocks up to its timeout.
/// Errors: children of RpcError. TransportFailure: no answer. ProtocolFailure: the answer is not from a
/// shared_tensor server. UnknownOrExpired: the name does not exist, or no longer exists. TensorExpired: the tensor was
/// removed while it was fetched. MethodNotFound: push() to a server that is not a node. ServerBusy: the receiver's
/// inbox stays full. ShuttingDown: after shutdown(). Cancelled: the method's `stop` was requested.
/// std::invalid_argument: the url is malformed or empty.
class Node {
public:
    /// Starts a server with the functions of `registry` and the node's own. Throws the errors of Server.
    explicit Node(NodeOptions options = {}, Registry registry = {});
    ~Node();  ///< shutdown()
    Node(const Node&) = delete;
    Node& operator=(const Node&) = delete;

    std::string url() const;  ///< for clients on this host; for other hosts, replace host 0.0.0.0 by the host's name
    int port() const;

    /// Publishes a tensor, so that other nodes can pull it. It is copied once, into memory of an older version if
    /// nobody reads that any more. Options and errors are those of NamedTensors::put(). `stop` does not end a copy that
    /// has begun.
    Published publish(std::string_view name, const TensorRef& tensor, const PutOptions& options = {},
                      const std::stop_token& stop = {}) const;
    /// Publishes a set in one step.
    template <detail::NamedTensorRange Tensors>
    Published publish(std::string_view name, const Tensors& tensors, const PutOptions& options = {},
                      const std::stop_token& stop = {}) const {
        return publish_set(name, {tensors.begin(), tensors.end()}, options, stop);
    }

    /// Fetches a named tensor from another node (or any server): through shared memory on the same host, in parallel
    /// ranges from another host.
    NamedTensor pull(const std::string& url, std::string_view name, const PullOptions& options = {},
                     const std::stop_token& stop = {}) const;

    /// Sends a tensor to the inbox of the node at `url`, and returns when it is in the inbox. After that, a tensor of
    /// empty_in_shared_memory() may be overwritten. Tries again while the inbox is full or its node
    /// has no memory for the tensor (ServerBusy, ServerOutOfMemory), until push_timeout.
    void push(const std::string& url, std::string_view name, const TensorRef& tensor,
              const std::stop_token& stop = {}) const;

    /// Takes the oldest message out of the inbox. Returns nullopt after the timeout, or after shutdown(). Each message
    /// is received once. If a sender pushes one message after another, they are received in this order.
    std::optional<NodeMessage> receive(std::chrono::milliseconds timeout) const;

    /// Aborts all requests in flight with ShuttingDown and stops the server. Blocks until the server has stopped. May
    /// be called more than once.
    void shutdown();

    NodeStatistics statistics() const;
    /// The statistics of the client of each known node, by url.
    std::map<std::string, ClientStatistics> peers() const;

private:
    class Impl;
    Published publish_set(std::string_view name, const std::vector<std::pair<std::string, TensorRef>>& members,
                          const PutOptions& options, const std::stop_token& stop) const;

    std::unique_ptr<Impl> impl_;
};

}  // namespace shared_tensor
