#include "server/rpc/client_watch.hpp"

#include <algorithm>

#include "server/local/local_client.hpp"

namespace shared_tensor::server {

namespace {

/// Watching the connection costs two system calls. Most calls end within this time, and then need none.
constexpr std::chrono::milliseconds kUnwatched{20};

}  // namespace

runtime::OutcomePointer ClientWatch::wait(const std::shared_ptr<runtime::Execution::Waiter>& waiter,
                                          SteadyTime deadline) {
    if (auto outcome = waiter->execution()->outcome()) return outcome;
    response_stream_->about_to_wait();
    if (!armed_) {
        if (auto outcome = waiter->wait_until(std::min(deadline, real_clock().now() + kUnwatched))) return outcome;
        arm();
    }
    const bool gone = state_->with([&](State& state) {
        if (!state.gone) state.waiting = waiter;
        return state.gone;
    });
    if (gone) return nullptr;
    auto outcome = waiter->wait_until(deadline);
    state_->with([](State& state) { state.waiting.reset(); });  // the caller then has the last reference
    return outcome;
}

void ClientWatch::on_gone(std::function<void()> told) {
    if (!armed_) arm();
    const bool gone = state_->with([&](State& state) {
        if (!state.gone) state.told.swap(told);  // a replaced callback is destroyed outside the lock
        return state.gone;
    });
    if (gone && told) told();
}

bool ClientWatch::gone() {
    if (!armed_) arm();
    return state_->with([](const State& state) { return state.gone; });
}

void ClientWatch::arm() {
    armed_ = true;
    const auto gone = [state = state_] {
        std::shared_ptr<runtime::Execution::Waiter> waiting;
        std::function<void()> told;
        state->with([&](State& held) {
            held.gone = true;
            waiting.swap(held.waiting);
            told.swap(held.told);
        });
        if (waiting) waiting->abandon();
        if (told) told();
    };
    response_stream_->on_client_gone(gone);
    if (process_ != nullptr) watching_process_.emplace(process_->end(), gone);
}

}  // namespace shared_tensor::server
