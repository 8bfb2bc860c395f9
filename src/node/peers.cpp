#include "node/peers.hpp"

#include <algorithm>
#include <memory>
#include <stdexcept>
#include <utility>
#include <vector>

namespace shared_tensor::node {

namespace {

bool shares_memory(const Client& client) {
    const auto transports = client.transports();
    return std::any_of(transports.begin(), transports.end(),
                       [](const TransportInfo& transport) { return transport.name == "shm" && transport.usable; });
}

}  // namespace

/// Registers the client before it sends anything, so that shutdown() reaches it.
std::shared_ptr<Peers::Peer> Peers::find_or_make(const std::string& url) {
    ClientOptions options = options_;
    options.url = url;
    auto made = std::make_shared<Peer>(Client(options));
    const SteadyTime now = real_clock().now();
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

Peers::PeerPointer Peers::at(const std::string& url) {
    if (url.empty())
        throw std::invalid_argument("the url of the other node is empty: use http://host:port or https://host:port");
    auto peer = find_or_make(url);
    std::call_once(peer->looked, [&] { peer->is_near = shares_memory(peer->client); });
    return peer;
}

void Peers::shutdown() {
    std::vector<std::shared_ptr<Peer>> all;
    state_.with([&](State& state) {
        state.closed = true;
        for (const auto& [url, known] : state.known)
            all.push_back(known.peer);
    });
    for (const auto& peer : all)
        peer->client.shutdown();
}

std::map<std::string, ClientStatistics> Peers::statistics() const {
    std::vector<std::pair<std::string, std::shared_ptr<Peer>>> all;
    state_.with([&](const State& state) {
        for (const auto& [url, known] : state.known)
            all.emplace_back(url, known.peer);
    });
    std::map<std::string, ClientStatistics> result;
    for (const auto& [url, peer] : all)
        result.emplace(url, peer->client.statistics());
    return result;
}

std::size_t Peers::size() const {
    return state_.with([](const State& state) { return state.known.size(); });
}

}  // namespace shared_tensor::node
