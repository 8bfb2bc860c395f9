#include "util/background.hpp"

#include <pthread.h>

#include <future>
#include <new>
#include <utility>

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

void Background::flush() {
    std::promise<void> done;
    post([&] { done.set_value(); });
    done.get_future().wait();
}

void Background::serve() {
    for (;;) {
        std::function<void()> work;
        {
            auto state = state_.lock();
            state.wait([](const State& held) { return held.closing || !held.waiting.empty(); });
            if (state->waiting.empty()) return;
            work = std::move(state->waiting.front());
            state->waiting.pop_front();
        }
        work();
    }
}

}  // namespace shared_tensor
