#include "streams/send_window.hpp"

#include <functional>

namespace shared_tensor::streams {

SendWindow::Room SendWindow::wait() {
    auto state = state_.lock();
    state.wait(std::not_fn(&State::is_full));
    if (state->closed) return Room::over;
    return state->stopped ? Room::stopped : Room::free;
}

bool SendWindow::is_full() const { return state_.with(std::mem_fn(&State::is_full)); }

void SendWindow::sent(std::uint64_t cost) {
    state_.with([&](State& state) {
        if (state.window.items == Window::kUnbounded) return;
        state.on_the_way.push_back(cost);
        state.cost += cost;
    });
}

bool SendWindow::taken(std::uint64_t items) {
    const bool valid = state_.with([&](State& state) {
        if (items < state.taken || items - state.taken > state.on_the_way.size()) return false;
        for (; state.taken < items; ++state.taken) {
            state.cost -= state.on_the_way.front();
            state.on_the_way.pop_front();
        }
        return true;
    });
    if (valid) state_.notify_all();
    return valid;
}

void SendWindow::stop() {
    state_.with([](State& state) { state.stopped = true; });
    state_.notify_all();
}

void SendWindow::close() {
    state_.with([](State& state) { state.closed = true; });
    state_.notify_all();
}

std::uint64_t SendWindow::sent_items() const {
    return state_.with([](const State& state) { return state.taken + state.on_the_way.size(); });
}

}  // namespace shared_tensor::streams
