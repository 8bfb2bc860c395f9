#include "streams/inflow.hpp"

#include <utility>

namespace shared_tensor::streams {

/// The sender counts what is on its way until it hears that it was taken, so more than a window never waits here.
bool Inflow::add(Item item) {
    const bool added = state_.with([&](State& state) {
        if (state.ended) return false;
        if (state.closed) return true;  // it was on its way
        if (state.items.size() >= state.window.items) return false;
        if (!state.items.empty() && state.cost >= state.window.bytes) return false;
        item.number = state.added++;
        state.cost += item.cost;
        state.items.push_back(std::move(item));
        return true;
    });
    if (added) state_.notify_all();
    return added;
}

void Inflow::end() {
    state_.with([](State& state) { state.ended = true; });
    state_.notify_all();
}

void Inflow::close(bool then_read) {
    std::deque<Item> dropped;  // outside the lock
    state_.with([&](State& state) {
        state.closed = true;
        if (!then_read) dropped.swap(state.items);
    });
    state_.notify_all();
}

/// The sender is told at every half window: it never waits while there is nothing to read here, since it waits only
/// for a whole one.
Inflow::Next Inflow::next() {
    auto state = state_.lock();
    state.wait([](const State& now) { return !now.items.empty() || now.ended || now.closed; });
    if (state->items.empty()) return {{}, state->closed && !state->ended, {}};
    Next next{std::move(state->items.front()), false, {}};
    state->items.pop_front();
    state->cost -= next.item->cost;
    state->cost_untold += next.item->cost;
    ++state->taken;
    const std::uint64_t untold = state->taken - state->told;
    if (untold * 2 >= state->window.items || state->cost_untold * 2 >= state->window.bytes) {
        next.taken = state->told = state->taken;
        state->cost_untold = 0;
    }
    return next;
}

}  // namespace shared_tensor::streams
