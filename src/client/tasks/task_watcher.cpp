#include "client/tasks/task_watcher.hpp"

#include <algorithm>
#include <utility>

#include "base/log/log.hpp"
#include "client/tasks/submission.hpp"

namespace shared_tensor::client {

namespace {

using std::chrono::milliseconds;

constexpr std::size_t kMostAtOnce = 200;  // tasks polled in one request
constexpr milliseconds kShortest{5}, kLongest{250};
constexpr std::chrono::seconds kToldOf{5};     // between polls of a task that the server reports
constexpr std::chrono::seconds kNextLine{10};  // before a new connection, after the last one failed or broke

void schedule(WatchedTask& task, SteadyTime now) {
    if (task.told_of) {
        task.next_look = now + kToldOf;
        return;
    }
    const auto tenth = std::chrono::duration_cast<milliseconds>(now - task.submitted) / 10;
    task.next_look = now + std::clamp(tenth, kShortest, kLongest);
}

/// Calls the user's function if the status is new to it.
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
    task->id = task->seen.with([](const WatchedTask::Seen& seen) { return seen.id; });
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
        announce();
        Due due = wait_for_due();
        if (due.over) break;
        if (due.line_broken) lose_line();
        if (!due.news.empty()) hear(due.news);
        if (!due.rejected.empty()) ask_for(due.rejected);
        if (!due.tasks.empty()) look(std::move(due.tasks));
    }
    line_.reset();
}

/// Subscribes to the tasks that are not announced yet.
void TaskWatcher::announce() {
    const SteadyTime now = core_->clock().now();
    const bool wanted = state_.with([](const State& state) {
        return !state.stopped &&
               std::any_of(state.tasks.begin(), state.tasks.end(), [](const auto& task) { return !task->announced; });
    });
    if (!wanted || (line_ == nullptr && now < no_line_before_)) return;
    if (line_ == nullptr) {
        no_line_before_ = now + kNextLine;
        const auto told = [this](TaskStatus status) {
            state_.with([&](State& state) { state.news.push_back(std::move(status)); });
            state_.notify_all();
        };
        const auto ended = [this] {
            state_.with([](State& state) { state.line_broken = true; });
            state_.notify_all();
        };
        const auto rejected = [this](const std::string& id) {
            state_.with([&](State& state) { state.rejected.push_back(id); });
            state_.notify_all();
        };
        line_ = TaskSubscription::open(*core_, {told, rejected, ended});
        if (line_ == nullptr) return;
    }
    std::vector<WatchedPointer> fresh;
    state_.with([&](State& state) {
        for (const auto& task : state.tasks) {
            if (!task->announced) fresh.push_back(task);
        }
    });
    for (const auto& task : fresh) {
        task->announced = task->told_of = line_->watch(task->id);
        schedule(*task, core_->clock().now());
    }
}

void TaskWatcher::hear(const std::vector<TaskStatus>& news) {
    for (const TaskStatus& status : news) {
        const WatchedPointer task = state_.with([&](State& state) -> WatchedPointer {
            const auto found = std::find_if(state.tasks.begin(), state.tasks.end(),
                                            [&](const auto& one) { return one->id == status.id; });
            if (found == state.tasks.end()) return nullptr;  // it has ended
            WatchedPointer taken = std::move(*found);
            state.tasks.erase(found);
            return taken;
        });
        if (task != nullptr && take(task, status)) keep({task});
    }
}

void TaskWatcher::ask_for(const std::vector<std::string>& ids) {
    const SteadyTime now = core_->clock().now();
    state_.with([&](State& state) {
        for (const auto& task : state.tasks) {
            if (std::find(ids.begin(), ids.end(), task->id) == ids.end()) continue;
            task->told_of = false;
            task->next_look = now;
        }
    });
}

void TaskWatcher::lose_line() {
    line_.reset();
    const SteadyTime now = core_->clock().now();
    no_line_before_ = now + kNextLine;
    state_.with([&](State& state) {
        state.line_broken = false;
        for (const auto& task : state.tasks) {
            task->announced = task->told_of = false;
            task->next_look = now;
        }
    });
}

bool TaskWatcher::is_stirred(const State& state) {
    return state.line_broken || !state.news.empty() || !state.rejected.empty();
}

/// Blocks until there is work. Takes due tasks out of the list. At the end returns only `over`.
TaskWatcher::Due TaskWatcher::wait_for_due() {
    auto state = state_.lock();
    for (;;) {
        if (state->stopped) return {.over = true};
        if (is_stirred(*state)) {
            return {{},
                    std::exchange(state->news, {}),
                    std::exchange(state->rejected, {}),
                    std::exchange(state->line_broken, false),
                    false};
        }
        const std::size_t known = state->tasks.size();
        const auto stirred = [known](const State& now) {
            return now.stopped || is_stirred(now) || now.tasks.size() != known;
        };
        if (known == 0) {
            state.wait(stirred);
        } else {
            std::sort(state->tasks.begin(), state->tasks.end(),
                      [](const auto& a, const auto& b) { return a->next_look < b->next_look; });
            const SteadyTime first = state->tasks.front()->next_look;
            if (first <= core_->clock().now()) break;
            state.wait_until(first, stirred);
        }
        if (state->tasks.size() != known) return {};
    }
    // Tasks that are due soon are included: one request instead of several.
    const SteadyTime soon = core_->clock().now() + kShortest;
    auto end = state->tasks.begin();
    while (end != state->tasks.end() && (*end)->next_look <= soon)
        ++end;
    end = state->tasks.begin() + std::min<std::ptrdiff_t>(end - state->tasks.begin(), kMostAtOnce);
    Due due{{state->tasks.begin(), end}, {}, {}, false, false};
    state->tasks.erase(state->tasks.begin(), end);
    return due;
}

void TaskWatcher::look(std::vector<WatchedPointer> due) {
    std::optional<Incoming> answer;
    Outgoing request = core_->compose(Outgoing::Form::batch, due.size());
    try {
        for (const auto& task : due) {
            request.call("task.get", detail::ArgumentsOf(named("id", task->id)));
        }
        request.finish();
        CallOptions options;
        options.idempotent = true;
        options.timeout = std::chrono::seconds(10);
        answer = core_->send(request, options);
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
