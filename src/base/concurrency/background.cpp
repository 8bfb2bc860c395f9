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

void Background::post_at(SteadyTime due, std::function<void()> work) noexcept {
    try {
        state_.with([&](State& state) { state.work.emplace(due, std::move(work)); });
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
        if (state->work.empty()) {
            if (state->closing) return nullptr;
            state.wait([](const State& held) { return held.closing || !held.work.empty(); });
        }
        if (state->work.empty()) continue;
        const auto first = state->work.begin();
        const SteadyTime due = first->first;
        if (state->closing || due <= real_clock().now()) return std::move(state->work.extract(first).mapped());
        state.wait_until(due, [&](const State& held) { return held.closing || held.work.begin()->first < due; });
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

std::jthread maintenance(const std::string& thread_name, std::chrono::milliseconds period,
                         std::function<void()> sweep) {
    std::jthread thread([period, sweep = std::move(sweep)](const std::stop_token& stop) {
        std::mutex mutex;
        std::condition_variable_any asleep;
        std::unique_lock lock(mutex);
        while (!asleep.wait_for(lock, stop, period, [&] { return stop.stop_requested(); })) {
            try {
                sweep();
            } catch (const std::exception& error) {
                log::error("maintenance: ", error.what());
            }
        }
    });
    ::pthread_setname_np(thread.native_handle(), thread_name.substr(0, 15).c_str());
    return thread;
}

}  // namespace shared_tensor
