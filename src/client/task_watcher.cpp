#include "client/task_watcher.hpp"

#include <algorithm>
#include <utility>

#include "client/submission.hpp"
#include "util/log.hpp"

namespace shared_tensor::client {

namespace {

using std::chrono::milliseconds;

constexpr std::size_t kMostAtOnce = 200;  // tasks asked for in one request
constexpr milliseconds kShortest{5}, kLongest{250};

void schedule(WatchedTask& task, SteadyTime now) {
    const auto tenth = std::chrono::duration_cast<milliseconds>(now - task.submitted) / 10;
    task.next_look = now + std::clamp(tenth, kShortest, kLongest);
}

/// Calls the user's function if there is something new for it.
void report(WatchedTask& task, const TaskStatus& status) {
    const auto callback = task.seen.with([&](WatchedTask::Seen& seen) -> std::function<void(const TaskStatus&)> {
        if (!seen.report || (seen.reported && !is_news(*seen.reported, status))) return {};
        seen.reported = status;
        return seen.report;
    });
    if (!callback) return;
    try {
        callback(status);
    } catch (const std::exception& error) {
        log::warn("a progress callback threw: ", error.what());
    } catch (...) {
        log::warn("a progress callback threw");
    }
}

}  // namespace

bool TaskWatcher::add(WatchedPointer task) {
    schedule(*task, core_->clock().now());
    const bool taken = state_.with([&](State& state) {
        if (!state.stopped) state.tasks.push_back(std::move(task));
        return !state.stopped;
    });
    if (!taken) return false;
    state_.notify_all();
    thread_.with([this](std::jthread& thread) {
        if (!thread.joinable()) thread = std::jthread([this] { watch(); });
    });
    return true;
}

std::vector<WatchedPointer> TaskWatcher::stop() {
    state_.with([](State& state) { state.stopped = true; });
    state_.notify_all();
    thread_.with([](std::jthread& thread) { return std::exchange(thread, {}); });  // waits for its end, unlocked
    return state_.with([](State& state) { return std::exchange(state.tasks, {}); });
}

void TaskWatcher::watch() {
    for (;;) {
        auto due = wait_for_due();
        if (due.empty()) return;
        look(std::move(due));
    }
}

/// Takes them out of the list; nothing at the end.
std::vector<WatchedPointer> TaskWatcher::wait_for_due() {
    auto state = state_.lock();
    for (;;) {
        if (state->stopped) return {};
        if (state->tasks.empty()) {
            state.wait([](const State& now) { return now.stopped || !now.tasks.empty(); });
            continue;
        }
        std::sort(state->tasks.begin(), state->tasks.end(),
                  [](const auto& a, const auto& b) { return a->next_look < b->next_look; });
        const SteadyTime first = state->tasks.front()->next_look;
        if (first <= core_->clock().now()) break;
        const std::size_t known = state->tasks.size();
        state.wait_until(first, [known](const State& now) { return now.stopped || now.tasks.size() != known; });
    }
    // Those that are due soon come along: one request instead of several.
    const SteadyTime soon = core_->clock().now() + kShortest;
    auto end = state->tasks.begin();
    while (end != state->tasks.end() && (*end)->next_look <= soon)
        ++end;
    end = state->tasks.begin() + std::min<std::ptrdiff_t>(end - state->tasks.begin(), kMostAtOnce);
    std::vector<WatchedPointer> due(state->tasks.begin(), end);
    state->tasks.erase(state->tasks.begin(), end);
    return due;
}

void TaskWatcher::look(std::vector<WatchedPointer> due) {
    std::optional<Incoming> answer;
    Outgoing request = core_->compose(Outgoing::Form::batch, due.size());
    try {
        for (const auto& task : due) {
            const std::string id = task->seen.with([](const WatchedTask::Seen& seen) { return seen.id; });
            request.call("task.get", detail::ArgumentsOf(named("id", id)));
        }
        request.finish();
        CallOptions options;
        options.idempotent = true;
        options.timeout = std::chrono::seconds(10);
        answer = core_->exchange(request, options);
    } catch (...) {
        if (core_->is_shut_down()) return keep(std::move(due));
        for (auto& task : due)
            end_(std::move(task), std::current_exception());
        return;
    }
    std::vector<WatchedPointer> going_on;
    for (std::size_t i = 0; i < due.size(); ++i) {
        StatusSlot slot;
        try {
            answer->result(request.first_id() + i, "task.get", slot);
        } catch (...) {
            end_(std::move(due[i]), std::current_exception());
            continue;
        }
        if (take(due[i], slot.status)) going_on.push_back(std::move(due[i]));
    }
    keep(std::move(going_on));
}

bool TaskWatcher::take(const WatchedPointer& task, const TaskStatus& status) {
    report(*task, status);
    if (status.ended()) {
        end_(task, nullptr);
        return false;
    }
    schedule(*task, core_->clock().now());
    return true;
}

void TaskWatcher::keep(std::vector<WatchedPointer> tasks) {
    state_.with([&](State& state) {
        state.tasks.insert(state.tasks.end(), std::make_move_iterator(tasks.begin()),
                           std::make_move_iterator(tasks.end()));
    });
}

}  // namespace shared_tensor::client
