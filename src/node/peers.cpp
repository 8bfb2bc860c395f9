#include "node/peers.hpp"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

namespace shared_tensor::node {

namespace {

bool shares_memory(const Client& client) {
    const auto ways = client.ways();
    return std::any_of(ways.begin(), ways.end(), [](const WayInfo& way) { return way.name == "shm" && way.usable; });
}

}  // namespace

Peers::Peer Peers::at(const std::string& url) {
    const SteadyTime now = real_clock().now();
    const auto known = state_.with([&](State& state) -> std::optional<Peer> {
        const auto found = state.known.find(url);
        if (found == state.known.end()) return std::nullopt;
        found->second.used = now;
        return found->second.peer;
    });
    if (known) return *known;
    ClientOptions options = options_;
    options.url = url;
    Peer made{Client(options), false};
    made.is_near = shares_memory(made.client);
    std::optional<Known> gone;  // without the lock
    const bool closed = state_.with([&](State& state) {
        if (state.known.size() >= most_ && !state.known.contains(url)) {
            const auto oldest =
                std::min_element(state.known.begin(), state.known.end(),
                                 [](const auto& a, const auto& b) { return a.second.used < b.second.used; });
            if (oldest != state.known.end()) {
                gone = std::move(oldest->second);
                state.known.erase(oldest);
            }
        }
        state.known.insert_or_assign(url, Known{made, now});
        return state.closed;
    });
    if (closed) made.client.shutdown();
    return made;
}

void Peers::shutdown() {
    std::vector<Client> all;
    state_.with([&](State& state) {
        state.closed = true;
        for (const auto& [url, known] : state.known)
            all.push_back(known.peer.client);
    });
    for (const Client& client : all)
        client.shutdown();
}

std::size_t Peers::size() const {
    return state_.with([](const State& state) { return state.known.size(); });
}

}  // namespace shared_tensor::node
