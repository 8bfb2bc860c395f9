#include "streams/windows.hpp"

#include <functional>
#include <utility>
#include <vector>

namespace shared_tensor::streams {

/// A sender that follows the protocol counts items until they are reported as taken. So the queue never exceeds a
/// window.
ReceiveQueue::Added ReceiveQueue::add(Item item) {
    const Added added = state_.with([&](State& state) {
        if (state.closed) return Added::dropped;
        if (state.ended || state.items.size() >= state.window.items) return Added::rejected;
        if (!state.items.empty() && state.cost >= state.window.bytes) return Added::rejected;
        item.number = state.added++;
        state.cost += item.cost;
        state.items.push_back(std::move(item));
        return Added::kept;
    });
    if (added == Added::kept) state_.notify_all();
    return added;
}

void ReceiveQueue::end() {
    state_.with([](State& state) { state.ended |= !state.closed; });
    state_.notify_all();
}

std::deque<Item> ReceiveQueue::close(bool then_read) {
    std::deque<Item> dropped;
    state_.with([&](State& state) {
        state.closed = true;
        if (then_read) return;
        dropped.swap(state.items);
        if (!dropped.empty()) state.ended = false;
    });
    state_.notify_all();
    return dropped;
}

bool ReceiveQueue::is_closed() const {
    return state_.with([](const State& state) { return state.closed; });
}

bool ReceiveQueue::has_next() const { return state_.with(std::mem_fn(&State::has_next)); }

/// Taken items are reported at every half window and at the end. The sender only waits when a whole window is not
/// taken, so it never waits while this queue is empty.
ReceiveQueue::Next ReceiveQueue::next() {
    auto state = state_.lock();
    state.wait(std::mem_fn(&State::has_next));
    if (state->items.empty()) {
        const bool untold = state->ended && std::exchange(state->told, state->taken) < state->taken;
        return {{}, state->closed && !state->ended, untold ? std::optional(state->taken) : std::nullopt};
    }
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

SendWindow::Room SendWindow::wait() {
    auto state = state_.lock();
    state.wait(std::not_fn(&State::is_full));
    if (state->closed) return Room::over;
    return state->stopped ? Room::stopped : Room::free;
}

bool SendWindow::is_full() const { return state_.with(std::mem_fn(&State::is_full)); }

void SendWindow::sent(std::uint64_t cost, std::function<void()> taken) {
    state_.with([&](State& state) {
        if (state.window.items == Window::kUnbounded && !taken) return;
        state.on_the_way.push_back({cost, std::move(taken)});
        state.cost += cost;
    });
}

bool SendWindow::taken(std::uint64_t items) {
    std::vector<std::function<void()>> reports;
    const bool valid = state_.with([&](State& state) {
        if (items < state.taken || items - state.taken > state.on_the_way.size()) return false;
        for (; state.taken < items; ++state.taken) {
            Sent& first = state.on_the_way.front();
            state.cost -= first.cost;
            if (first.taken) reports.push_back(std::move(first.taken));
            state.on_the_way.pop_front();
        }
        return true;
    });
    if (valid) state_.notify_all();
    for (const auto& report : reports)
        report();
    return valid;
}

void SendWindow::all_taken() {
    taken(state_.with([](const State& state) { return state.taken + state.on_the_way.size(); }));
}

void SendWindow::stop() {
    state_.with([](State& state) { state.stopped = true; });
    state_.notify_all();
}

void SendWindow::close() {
    state_.with([](State& state) { state.closed = true; });
    state_.notify_all();
}

}  // namespace shared_tensor::streams
