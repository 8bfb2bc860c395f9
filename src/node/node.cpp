#include <shared_tensor/node.hpp>

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include <shared_tensor/tensor.hpp>

#include "node/inbox.hpp"
#include "node/peers.hpp"
#include "tensor/at_tensor.hpp"
#include "util/clock.hpp"
#include "util/guarded.hpp"

namespace shared_tensor {

namespace {

constexpr const char* kDeliver = "node.deliver";
constexpr std::chrono::milliseconds kFirstPause{2}, kLongestPause{200};  // while an inbox is full
constexpr std::chrono::milliseconds kDrainTime{1000};

ShuttingDown shut_down() {
    return {static_cast<int>(ErrorCode::shutting_down), "Shutting down", {}, "this node was shut down"};
}

}  // namespace

const std::string& NodeMessage::name() const { return content_->name; }
const at::Tensor& NodeMessage::tensor() const { return content_->tensor->tensor(); }

class Node::Impl {
public:
    Impl(NodeOptions wanted, Registry registry)
        : options(std::move(wanted)),
          inbox(options.inbox_messages, options.inbox_bytes),
          peers(options.client, options.max_peers),
          server(with_inbox(std::move(registry)), options.server) {
        server.start();
    }

    /// Everything that may be in flight when the node ends.
    template <class Do>
    auto guarded(std::atomic<std::uint64_t>& count, Do act) {
        if (stopped) throw shut_down();
        try {
            auto result = act();
            ++count;
            return result;
        } catch (const RpcError&) {
            ++failed;
            if (stopped) throw shut_down();
            throw;
        } catch (...) {
            ++failed;
            throw;
        }
    }

    void stop() {
        if (stopped.exchange(true)) return;
        inbox.close();
        peers.shutdown();
        server.stop(kDrainTime);
    }

    const NodeOptions options;
    node::Inbox inbox;
    node::Peers peers;
    Server server;
    std::atomic<bool> stopped{false};
    std::atomic<std::uint64_t> published{0}, pulled{0}, pushed{0}, received{0}, failed{0};

private:
    Registry with_inbox(Registry registry) {
        registry.add(
            kDeliver,
            [this](const std::string& name, const at::Tensor& tensor) {
                return inbox.put({name, tensor::make_plain_handle(tensor)});
            },
            arg("name"), arg("tensor"), doc("Puts a tensor into the inbox of this node; false: the inbox is full."));
        return registry;
    }
};

Node::Node(NodeOptions options, Registry registry)
    : impl_(std::make_unique<Impl>(std::move(options), std::move(registry))) {}
Node::~Node() { shutdown(); }

std::string Node::url() const { return impl_->server.url(); }
int Node::port() const { return impl_->server.port(); }

NamedTensors Node::own() const { return NamedTensors(impl_->peers.at(url()).client); }

void Node::run(const std::function<void()>& publish) const {
    impl_->guarded(impl_->published, [&] {
        publish();
        return true;
    });
}

NamedTensor Node::pull(const std::string& url, std::string_view name, const PullOptions& options) const {
    return impl_->guarded(impl_->pulled, [&] {
        const node::Peers::Peer peer = impl_->peers.at(url);
        const NamedTensors names(peer.client);
        const bool is_part = options.first_row || options.last_row;
        return peer.is_near && !is_part ? names.get(name, options.version) : names.pull(name, options);
    });
}

void Node::push(const std::string& url, std::string_view name, const at::Tensor& tensor) const {
    impl_->guarded(impl_->pushed, [&] {
        const Client client = impl_->peers.at(url).client;
        const SteadyTime deadline = real_clock().now() + impl_->options.push_timeout;
        for (auto pause = kFirstPause;; pause = std::min(2 * pause, kLongestPause)) {
            if (client.call<bool>(kDeliver, named("name", name), named("tensor", tensor))) return true;
            if (impl_->stopped) throw shut_down();
            if (real_clock().now() + pause >= deadline) {
                throw ServerBusy(
                    static_cast<int>(ErrorCode::busy), "Server busy", {},
                    "the inbox of " + url + " stays full: its node must receive() more, or have a larger one");
            }
            std::this_thread::sleep_for(pause);
        }
    });
}

std::optional<NodeMessage> Node::receive(std::chrono::milliseconds timeout) const {
    auto message = impl_->inbox.take(timeout);
    if (message) ++impl_->received;
    return message;
}

void Node::shutdown() { impl_->stop(); }

NodeStatistics Node::statistics() const {
    NodeStatistics statistics;
    statistics.published = impl_->published;
    statistics.pulled = impl_->pulled;
    statistics.pushed = impl_->pushed;
    statistics.received = impl_->received;
    statistics.failed = impl_->failed;
    statistics.refused = impl_->inbox.refused();
    statistics.waiting = impl_->inbox.size();
    statistics.peers = impl_->peers.size();
    return statistics;
}

}  // namespace shared_tensor
