#include "base/concurrency/alarms.hpp"

#include <pthread.h>

#include <algorithm>
#include <utility>

namespace shared_tensor {

namespace {

// While alarms come and go the thread looks this often, so no add() has to wake it.
constexpr std::chrono::milliseconds kPeriod{20};
constexpr std::size_t kIdleLooks = 50;  // then it sleeps until it is woken

}  // namespace

Alarms::Alarms(const std::string& thread_name) : thread_([this] { serve(); }) {
    ::pthread_setname_np(thread_.native_handle(), thread_name.substr(0, 15).c_str());
}

Alarms::~Alarms() {
    state_.with([](State& state) { state.closing = state.woken = true; });
    state_.notify_all();
    thread_.join();
}

void Alarms::add(Alarm& alarm, SteadyTime due) {
    const bool sleeps_too_long = state_.with([&](State& state) {
        alarm.due_ = due;
        state.alarms.push_back(&alarm);
        state.idle_looks = 0;
        return due < state.wakes_at && !std::exchange(state.woken, true);
    });
    if (sleeps_too_long) state_.notify_all();
}

void Alarms::ring_now(Alarm& alarm) {
    state_.with([&](State& state) {
        alarm.due_ = SteadyTime::min();
        state.woken = true;
    });
    state_.notify_all();
}

void Alarms::remove(Alarm& alarm) {
    auto state = state_.lock();
    std::erase(state->alarms, &alarm);  // first, or an alarm that is due again could ring before this thread wakes
    state.wait([&](const State& now) { return now.ringing != &alarm; });
}

Alarms::Alarm* Alarms::first_of(const State& state) {
    const auto first = std::min_element(state.alarms.begin(), state.alarms.end(),
                                        [](const Alarm* one, const Alarm* other) { return one->due_ < other->due_; });
    return first == state.alarms.end() ? nullptr : *first;
}

/// Null when the alarms end. The alarm counts as ringing.
Alarms::Alarm* Alarms::wait_for_due() {
    auto state = state_.lock();
    while (!state->closing) {
        const SteadyTime now = real_clock().now();
        Alarm* const first = first_of(*state);
        if (first != nullptr && first->due_ <= now) {
            state->ringing = first;
            first->due_ = SteadyTime::max();
            return first;
        }
        state->woken = false;
        state->wakes_at = first != nullptr ? first->due_ : SteadyTime::max();
        if (state->idle_looks++ < kIdleLooks) state->wakes_at = std::min(state->wakes_at, now + kPeriod);
        const auto woken = [](const State& held) { return held.woken; };
        if (state->wakes_at == SteadyTime::max()) {
            state.wait(woken);
        } else {
            state.wait_until(state->wakes_at, woken);
        }
    }
    return nullptr;
}

void Alarms::serve() {
    while (Alarm* const alarm = wait_for_due()) {
        const SteadyTime next = alarm->ring(real_clock().now());
        state_.with([&](State& state) {
            alarm->due_ = std::min(alarm->due_, next);  // ring_now() may have set it meanwhile
            state.ringing = nullptr;
        });
        state_.notify_all();
    }
}

}  // namespace shared_tensor
