#include <shared_tensor/node.hpp>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>

#include <shared_tensor/tensor_ref.hpp>

#include "base/concurrency/clock.hpp"
#include "base/concurrency/guarded.hpp"
#include "base/system/fork.hpp"
#include "client/call/failure.hpp"
#include "client/transfers/transfer.hpp"
#include "node/own_names.hpp"
#include "node/peers.hpp"
#include "tensor/handle.hpp"

namespace shared_tensor {

struct NodeMessage::Content {
    std::string name;
    codec::TensorPointer tensor;
};

namespace {

/// A bounded queue of messages. Thread safety: all methods from any thread; only take() blocks.
class Inbox {
public:
    Inbox(std::size_t max_messages, std::uint64_t max_bytes) : max_messages_(max_messages), max_bytes_(max_bytes) {}

    /// False if the inbox is full or closed. An empty inbox accepts one message of any size.
    bool put(std::shared_ptr<const NodeMessage::Content> message) {
        const std::uint64_t bytes = message->tensor->bytes();
        const bool taken = state_.with([&](State& state) {
            if (!has_room(state, bytes)) {
                ++state.rejected;
                return false;
            }
            state.waiting.push_back(std::move(message));
            state.bytes += bytes;
            return true;
        });
        if (taken) state_.notify_one();
        return taken;
    }
    /// Whether put() would accept a message of `bytes` bytes now.
    bool has_room(std::uint64_t bytes) const {
        return state_.with([&](const State& state) { return has_room(state, bytes); });
    }
    /// Null if no message came in time.
    std::shared_ptr<const NodeMessage::Content> take(std::chrono::milliseconds timeout) {
        constexpr std::chrono::hours kLongest(24 * 365);  // longer times would overflow the clock
        const SteadyTime deadline = real_clock().now() + std::clamp<SteadyTime::duration>(timeout, {}, kLongest);
        auto state = state_.lock();
        (void)state.wait_until(deadline, [](const State& now) { return now.closed || !now.waiting.empty(); });
        if (state->waiting.empty()) return nullptr;
        auto message = std::move(state->waiting.front());
        state->waiting.pop_front();
        state->bytes -= message->tensor->bytes();
        return message;
    }
    /// Wakes all threads in take(), drops all messages and rejects new ones.
    void close() {
        decltype(State::waiting) dropped;  // destroyed without the lock
        state_.with([&](State& state) {
            state.closed = true;
            state.bytes = 0;
            dropped.swap(state.waiting);
        });
        state_.notify_all();
    }

    std::size_t size() const {
        return state_.with([](const State& state) { return state.waiting.size(); });
    }
    std::uint64_t rejected() const { return state_.get(&State::rejected); }

private:
    struct State {
        std::deque<std::shared_ptr<const NodeMessage::Content>> waiting;
        std::uint64_t bytes = 0, rejected = 0;
        bool closed = false;
    };
    bool has_room(const State& state, std::uint64_t bytes) const {
        const bool fits = state.waiting.empty() || (bytes <= max_bytes_ && state.bytes <= max_bytes_ - bytes);
        return !state.closed && state.waiting.size() < max_messages_ && fits;
    }

    const std::size_t max_messages_;
    const std::uint64_t max_bytes_;
    Guarded<State> state_;
};

constexpr const char *kDeliver = "node.deliver", *kHasRoom = "node.has_room";
constexpr std::size_t kLongestName = 255;
constexpr std::chrono::milliseconds kFirstPause{2}, kLongestPause{200};  // between tries while an inbox is full
constexpr std::chrono::milliseconds kDrainTime{1000};
constexpr std::chrono::milliseconds kShortestTry{1000}, kLongestTimeout{std::chrono::hours(24)};

ServerBusy full(const std::string& url) {
    return {static_cast<int>(ErrorCode::busy),
            "Server busy",
            {},
            "the inbox of " + url + " stays full: its node must receive() more, or have a larger one"};
}

ShuttingDown shut_down() {
    return {static_cast<int>(ErrorCode::shutting_down), "Shutting down", {}, "this node was shut down"};
}

/// Returns early if `stop` is requested.
void sleep_for(std::chrono::milliseconds time, const std::stop_token& stop) {
    std::mutex mutex;
    std::unique_lock lock(mutex);
    std::condition_variable_any().wait_for(lock, stop, time, [] { return false; });
}

}  // namespace

const std::string& NodeMessage::name() const { return content_->name; }
const TensorRef& NodeMessage::tensor() const { return content_->tensor->tensor(); }

class Node::Impl {
public:
    Impl(NodeOptions wanted, Registry registry)
        : options(std::move(wanted)),
          inbox(options.inbox_messages, options.inbox_bytes),
          server(with_inbox(std::move(registry)), options.server) {
        server.start();
    }

    /// Runs `act` and counts it. Throws ShuttingDown if the node was shut down before or meanwhile.
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

    /// A concurrent call waits until the first one is done. In a forked child it only ends the child's calls: the rest
    /// belongs to the parent.
    void stop() {
        if (!process.is_here()) {
            stopped = true;
            return peers().shutdown();
        }
        std::call_once(stopping, [this] {
            stopped = true;
            inbox.close();
            peers().shutdown();
            server.stop(kDrainTime);
        });
    }

    /// Clients of other nodes. A forked child makes its own.
    std::chrono::milliseconds push_timeout() const {
        return std::clamp<std::chrono::milliseconds>(options.push_timeout, {}, kLongestTimeout);
    }
    node::Peers& peers() {
        return peers_.get(
            [this] { return std::make_unique<node::Peers>(options.client, options.max_peers, push_timeout()); });
    }

    Published publish(std::string_view name, node::Content content, const PutOptions& how,
                      const std::stop_token& stop) {
        return guarded(published, [&] {
            if (!process.is_here() || content.is_on_device()) return publish_as_client(name, content, how, stop);
            if (stop.stop_requested()) client::throw_cancelled(name, false);
            server::Services& all = server.services();
            const std::string own_name(name);
            const std::string owner = node::publisher_of(all, options.client.token, own_name);
            return node::publish(all, owner, own_name, std::move(content), how, node::Take::copy);
        });
    }
    const ProcessMark process;
    const NodeOptions options;
    Inbox inbox;
    Server server;
    std::atomic<bool> stopped{false};
    std::once_flag stopping;
    std::atomic<std::uint64_t> published{0}, pulled{0}, pushed{0}, received{0}, failed{0};

private:
    /// Publishes as any client of the server does.
    Published publish_as_client(std::string_view name, const node::Content& content, const PutOptions& how,
                                const std::stop_token& stop) {
        const NamedTensors own(peers().at(own_url(), stop)->client.with({.stop = stop}));
        if (content.tensor != nullptr) return own.put(name, content.tensor->tensor(), how);
        std::map<std::string, TensorRef> members;
        for (const auto& [member, tensor] : content.members)
            members.emplace_hint(members.end(), member, tensor->tensor());
        return own.put(name, members, how);
    }
    /// The URL at which this process can reach its own server.
    std::string own_url() const {
        const std::string& host = options.server.host;
        if (host != "0.0.0.0" && host != "::") return server.url();
        const std::string scheme = options.server.tls.certificate.empty() ? "http://" : "https://";
        return scheme + (host == "::" ? "[::1]" : "127.0.0.1") + ":" + std::to_string(server.port());
    }

    OfThisProcess<node::Peers> peers_;
    Registry with_inbox(Registry registry) {
        registry.add(
            kDeliver,
            [this](const std::string& name, const TensorRef& tensor) {
                if (name.size() > kLongestName)
                    throw InvalidValue("name", "at most 255 bytes", std::to_string(name.size()));
                return inbox.put(std::make_shared<const NodeMessage::Content>(
                    NodeMessage::Content{name, tensor::make_handle(tensor)}));
            },
            arg("name"), arg("tensor"), execution::inline_,
            doc("Puts a tensor into the inbox of this node; false: the inbox is full."));
        registry.add(
            kHasRoom, [this](std::uint64_t bytes) { return inbox.has_room(bytes); }, arg("bytes"), execution::inline_,
            doc("Whether the inbox of this node has room for a tensor of `bytes` bytes now."));
        return registry;
    }
};

Node::Node(NodeOptions options, Registry registry)
    : impl_(std::make_unique<Impl>(std::move(options), std::move(registry))) {}
Node::~Node() {
    shutdown();
    if (!impl_->process.is_here()) static_cast<void>(impl_.release());  // the inbox and the server belong to the parent
}

std::string Node::url() const { return impl_->server.url(); }
int Node::port() const { return impl_->server.port(); }

Published Node::publish(std::string_view name, const TensorRef& tensor, const PutOptions& options,
                        const std::stop_token& stop) const {
    return impl_->publish(name, {tensor::make_handle(tensor)}, options, stop);
}

Published Node::publish_set(std::string_view name, const std::vector<std::pair<std::string, TensorRef>>& members,
                            const PutOptions& options, const std::stop_token& stop) const {
    return impl_->publish(name, {nullptr, by_name(members)}, options, stop);
}

NamedTensor Node::pull(const std::string& url, std::string_view name, const PullOptions& options,
                       const std::stop_token& stop) const {
    return impl_->guarded(impl_->pulled, [&] {
        const auto peer = impl_->peers().at(url, stop);
        const NamedTensors names(peer->client.with({.stop = stop}));
        if (!peer->is_near || options.first_row || options.last_row || options.part) return names.pull(name, options);
        return options.previous && !options.version ? names.get(name, *options.previous)
                                                    : names.get(name, options.version);
    });
}

/// After a full inbox rejected the tensor, asks for room before it sends the tensor again.
void Node::push(const std::string& url, std::string_view name, const TensorRef& tensor,
                const std::stop_token& stop) const {
    impl_->guarded(impl_->pushed, [&] {
        const SteadyTime deadline = real_clock().now() + impl_->push_timeout();
        const auto peer = impl_->peers().at(url, stop);
        const auto client = [&](std::string key) {
            const auto rest = std::chrono::ceil<std::chrono::milliseconds>(deadline - real_clock().now());
            return peer->client.with({.timeout = std::max(rest, kShortestTry),
                                      .stop = stop,
                                      .idempotency_key = std::move(key),
                                      .idempotent = true});
        };
        // The key stays the same until the inbox answers, so that a repeated request is delivered once.
        std::string key = impl_->peers().next_key();
        bool has_room = true;
        for (auto pause = kFirstPause;; pause = std::min(2 * pause, kLongestPause)) {
            const auto is_last = [&] { return real_clock().now() + pause >= deadline; };
            try {
                if (!has_room) has_room = client({}).call<bool>(kHasRoom, named("bytes", tensor.bytes()));
                if (has_room) {
                    if (client(key).call<bool>(kDeliver, named("name", name), named("tensor", tensor))) return true;
                    key = impl_->peers().next_key();
                    has_room = false;
                }
            } catch (const RpcError& error) {
                // The messages in an inbox count against the limits of its server.
                const bool may_pass = error.is(ErrorCode::busy) || error.is(ErrorCode::out_of_memory);
                pause = std::clamp(client::details_of(error).retry_after, pause, kLongestPause);
                if (!may_pass || is_last()) throw;
            }
            if (impl_->stopped) throw shut_down();
            if (is_last()) throw full(url);
            sleep_for(pause, stop);
        }
    });
}

std::optional<NodeMessage> Node::receive(std::chrono::milliseconds timeout) const {
    if (!impl_->process.is_here()) client::throw_of_parent("the inbox of this node", "make another Node here");
    auto message = impl_->inbox.take(timeout);
    if (message == nullptr) return std::nullopt;
    ++impl_->received;
    return NodeMessage(std::move(message));
}

void Node::shutdown() { impl_->stop(); }

std::map<std::string, ClientStatistics> Node::peers() const { return impl_->peers().statistics(); }

NodeStatistics Node::statistics() const {
    NodeStatistics statistics;
    statistics.published = impl_->published;
    statistics.pulled = impl_->pulled;
    statistics.pushed = impl_->pushed;
    statistics.received = impl_->received;
    statistics.failed = impl_->failed;
    if (impl_->process.is_here()) {
        statistics.rejected = impl_->inbox.rejected();
        statistics.waiting = impl_->inbox.size();
    }
    statistics.peers = impl_->peers().size();
    return statistics;
}

}  // namespace shared_tensor
