#include "node/inbox.hpp"

#include <algorithm>
#include <utility>

#include "base/concurrency/clock.hpp"

namespace shared_tensor::node {

bool Inbox::has_room(const State& state, std::uint64_t bytes) const {
    const bool fits = state.waiting.empty() || (bytes <= max_bytes_ && state.bytes <= max_bytes_ - bytes);
    return !state.closed && state.waiting.size() < max_messages_ && fits;
}

bool Inbox::has_room(std::uint64_t bytes) const {
    return state_.with([&](const State& state) { return has_room(state, bytes); });
}

bool Inbox::put(NodeMessage::Content message) {
    const std::uint64_t bytes = message.tensor->bytes();
    auto shared = std::make_shared<const NodeMessage::Content>(std::move(message));
    const bool taken = state_.with([&](State& state) {
        if (!has_room(state, bytes)) {
            ++state.rejected;
            return false;
        }
        state.waiting.push_back(std::move(shared));
        state.bytes += bytes;
        return true;
    });
    if (taken) state_.notify_one();
    return taken;
}

std::optional<NodeMessage> Inbox::take(std::chrono::milliseconds timeout) {
    constexpr std::chrono::hours kLongest(24 * 365);  // longer times would overflow the clock
    const SteadyTime deadline = real_clock().now() + std::clamp<SteadyTime::duration>(timeout, {}, kLongest);
    auto state = state_.lock();
    (void)state.wait_until(deadline, [](const State& now) { return now.closed || !now.waiting.empty(); });
    if (state->waiting.empty()) return std::nullopt;
    auto message = std::move(state->waiting.front());
    state->waiting.pop_front();
    state->bytes -= message->tensor->bytes();
    return NodeMessage(std::move(message));
}

void Inbox::close() {
    decltype(State::waiting) dropped;  // destroyed without the lock
    state_.with([&](State& state) {
        state.closed = true;
        state.bytes = 0;
        dropped.swap(state.waiting);
    });
    state_.notify_all();
}

std::size_t Inbox::size() const {
    return state_.with([](const State& state) { return state.waiting.size(); });
}

std::uint64_t Inbox::rejected() const {
    return state_.with([](const State& state) { return state.rejected; });
}

}  // namespace shared_tensor::node
