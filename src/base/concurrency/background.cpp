#include "base/concurrency/background.hpp"

#include <pthread.h>

#include <condition_variable>
#include <exception>
#include <future>
#include <memory>
#include <mutex>
#include <new>
#include <utility>

#include "base/log/log.hpp"
#include "base/system/fork.hpp"

namespace shared_tensor {

Background::Background(const std::string& thread_name) : thread_([this] { serve(); }) {
    ::pthread_setname_np(thread_.native_handle(), thread_name.substr(0, 15).c_str());
}

Background::~Background() {
    state_.with([](State& state) { state.closing = true; });
    state_.notify_all();
    thread_.join();
}

void Background::post(std::function<void()> work) noexcept {
    try {
        state_.with([&](State& state) { state.waiting.push_back(std::move(work)); });
    } catch (const std::bad_alloc&) {
        return work();
    }
    state_.notify_one();
}

void Background::post_after(std::chrono::milliseconds delay, std::function<void()> work) noexcept {
    try {
        state_.with([&](State& state) {
            state.later.emplace(real_clock().now() + delay, std::move(work));
            ++state.changes;
        });
    } catch (const std::bad_alloc&) {
        return work();
    }
    state_.notify_one();
}

void Background::flush() {
    std::promise<void> done;
    post([&] { done.set_value(); });
    done.get_future().wait();
}

std::function<void()> Background::next() {
    auto state = state_.lock();
    for (;;) {
        const SteadyTime now = real_clock().now();
        while (!state->later.empty() && (state->closing || state->later.begin()->first <= now)) {
            state->waiting.push_back(std::move(state->later.begin()->second));
            state->later.erase(state->later.begin());
        }
        if (!state->waiting.empty()) {
            auto work = std::move(state->waiting.front());
            state->waiting.pop_front();
            return work;
        }
        if (state->closing) return nullptr;
        const auto news = [seen = state->changes](const State& held) {
            return held.closing || !held.waiting.empty() || held.changes != seen;
        };
        if (state->later.empty()) {
            state.wait(news);
        } else {
            state.wait_until(state->later.begin()->first, news);
        }
    }
}

void Background::serve() {
    while (const auto work = next())
        work();
}

namespace {

using Thread = NeverDestroyed<OfThisProcess<Background>>;
constinit Thread closing, telling;

}  // namespace

Background& background_executor() {
    return closing.value.get([] { return std::make_unique<Background>("st-executor"); });
}

Background& request_executor() {
    return telling.value.get([] { return std::make_unique<Background>("st-requests"); });
}

namespace {

void sweep_until(const std::stop_token& stop, std::chrono::milliseconds period, const std::function<void()>& sweep) {
    std::mutex mutex;
    std::condition_variable_any asleep;
    std::unique_lock lock(mutex);
    for (;;) {
        asleep.wait_for(lock, stop, period, [] { return false; });
        if (stop.stop_requested()) return;
        try {
            sweep();
        } catch (const std::exception& error) {
            log::error("maintenance: ", error.what());
        }
    }
}

}  // namespace

Maintenance::Maintenance(const std::string& thread_name, std::chrono::milliseconds period, std::function<void()> sweep)
    : thread_([period, sweep = std::move(sweep)](const std::stop_token& stop) { sweep_until(stop, period, sweep); }) {
    ::pthread_setname_np(thread_.native_handle(), thread_name.substr(0, 15).c_str());
}

}  // namespace shared_tensor
