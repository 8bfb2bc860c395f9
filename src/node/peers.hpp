#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <map>
#include <memory>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <utility>

#include <shared_tensor/client.hpp>

#include "base/bytes/ids.hpp"
#include "base/concurrency/at_end.hpp"
#include "base/concurrency/clock.hpp"
#include "base/concurrency/guarded.hpp"
#include "client/call/failure.hpp"

namespace shared_tensor::node {

/// Clients of other nodes, each made at first use. Beyond `most`, the client unused for longest is dropped, but none
/// that is in use. Thread safety: all methods from any thread.
class Peers {
public:
    /// `answers_within`: the time that a node has for the first answers.
    Peers(ClientOptions options, std::size_t most, std::chrono::milliseconds answers_within)
        : options_(std::move(options)), most_(most), answers_within_(answers_within) {}

    enum class Look { not_begun, under_way, done };
    struct Peer {
        explicit Peer(Client made) : client(std::move(made)) {}
        const Client client;
        Guarded<Look> look{Look::not_begun};
        bool is_near = false;  ///< whether it shares memory with this process; written before `look` is done
    };
    using PeerPointer = std::shared_ptr<const Peer>;
    /// Blocks for a few round trips at the first use of a url, until `stop` is requested. Several callers wait for one
    /// look; if it fails, the next caller looks again. Throws std::invalid_argument for an invalid url, and the
    /// RpcErrors of its client.
    PeerPointer at(const std::string& url, const std::stop_token& stop) {
        if (url.empty())
            throw std::invalid_argument(
                "the url of the other node is empty: use http://host:port or https://host:port");
        auto peer = find_or_make(url);
        if (begin_look(*peer, stop)) look(*peer, stop);
        return peer;
    }
    /// Aborts all requests in flight. Clients made later are shut down too.
    void shutdown() {
        const auto all = state_.with([&](State& state) {
            state.closed = true;
            return state.known;
        });
        for (const auto& [url, known] : all)
            known.peer->client.shutdown();
    }
    /// An idempotency key for one message.
    std::string next_key() { return keys_.next(); }
    std::size_t size() const {
        return state_.with([](const State& state) { return state.known.size(); });
    }
    std::map<std::string, ClientStatistics> statistics() const {
        const auto all = state_.get(&State::known);
        std::map<std::string, ClientStatistics> result;
        for (const auto& [url, known] : all)
            result.emplace(url, known.peer->client.statistics());
        return result;
    }

private:
    struct Known {
        std::shared_ptr<Peer> peer;
        SteadyTime used;
    };
    struct State {
        std::map<std::string, Known> known;
        bool closed = false;
    };

    /// Waits while another caller looks, until `stop` is requested. Returns true if this caller is to look now.
    static bool begin_look(Peer& peer, const std::stop_token& stop) {
        const std::stop_callback wake(stop, [&peer] { peer.look.wake_all(); });
        auto look = peer.look.lock();
        look.wait([&](Look now) { return now != Look::under_way || stop.stop_requested(); });
        if (*look == Look::under_way) client::throw_cancelled("the first look at the other node", false);
        if (*look == Look::done) return false;
        *look = Look::under_way;
        return true;
    }

    void look(Peer& peer, const std::stop_token& stop) const {
        Look result = Look::not_begun;
        const AtEnd ended([&] {
            peer.look.with([&](Look& look) { look = result; });
            peer.look.notify_all();
        });
        peer.is_near = shares_memory(peer.client.with({.timeout = answers_within_, .stop = stop}));
        result = Look::done;
    }

    static bool shares_memory(const Client& client) {
        const auto transports = client.transports();
        return std::any_of(transports.begin(), transports.end(),
                           [](const TransportInfo& transport) { return transport.name == "shm" && transport.usable; });
    }

    /// Registers the client before it sends anything, so that shutdown() reaches it.
    std::shared_ptr<Peer> find_or_make(const std::string& url) {
        const SteadyTime now = real_clock().now();
        const auto known = state_.with([&](State& state) -> std::shared_ptr<Peer> {
            const auto found = state.known.find(url);
            if (found == state.known.end()) return nullptr;
            found->second.used = now;
            return found->second.peer;
        });
        if (known != nullptr) return known;
        ClientOptions options = options_;
        options.url = url;
        auto made = std::make_shared<Peer>(Client(options));
        std::shared_ptr<Peer> gone;  // destroyed without the lock
        bool closed = false;
        auto peer = state_.with([&](State& state) {
            closed = state.closed;
            const auto [at, is_new] = state.known.try_emplace(url, Known{made, now});
            at->second.used = now;
            if (!is_new || state.known.size() <= most_) return at->second.peer;
            auto oldest = state.known.end();
            for (auto one = state.known.begin(); one != state.known.end(); ++one) {
                const bool in_use = one->second.peer.use_count() > 1;
                if (!in_use && (oldest == state.known.end() || one->second.used < oldest->second.used)) oldest = one;
            }
            if (oldest != state.known.end()) {
                gone = std::move(oldest->second.peer);
                state.known.erase(oldest);
            }
            return made;
        });
        if (closed) peer->client.shutdown();
        return peer;
    }

    const ClientOptions options_;
    const std::size_t most_;
    const std::chrono::milliseconds answers_within_;
    Guarded<State> state_;
    CountedIds keys_{16};
};

}  // namespace shared_tensor::node
