#include "client/async/work_queue.hpp"

#include <utility>

namespace shared_tensor::client {

WorkQueue::WorkQueue(std::size_t threads) {
    threads_.reserve(threads);
    try {
        for (std::size_t i = 0; i < threads; ++i)
            threads_.emplace_back([this] { work(); });
    } catch (...) {  // a thread could not be started: the started threads must end
        close();
        join();
        throw;
    }
}

WorkQueue::~WorkQueue() {
    close();
    join();
}

std::unique_ptr<Job> WorkQueue::push(std::unique_ptr<Job> job, std::size_t limit) {
    const bool taken = state_.with([&](State& state) {
        if (state.closed || (limit > 0 && state.waiting.size() >= limit)) return false;
        state.waiting.push_back(std::move(job));
        return true;
    });
    if (taken) state_.notify_one();
    return job;
}

void WorkQueue::work() {
    for (;;) {
        std::unique_ptr<Job> job;
        {
            auto state = state_.lock();
            state.wait([](const State& now) { return now.closed || !now.waiting.empty(); });
            if (state->closed) return;
            job = std::move(state->waiting.front());
            state->waiting.pop_front();
        }
        job->run();
    }
}

void WorkQueue::close() {
    state_.with([](State& state) { state.closed = true; });
    state_.notify_all();
}

std::deque<std::unique_ptr<Job>> WorkQueue::join() {
    threads_.clear();
    return state_.with([](State& state) { return std::exchange(state.waiting, {}); });
}

}  // namespace shared_tensor::client
