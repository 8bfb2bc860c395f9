#include "client/tasks/task_watcher.hpp"

#include <algorithm>
#include <utility>

#include "base/log/log.hpp"
#include "client/tasks/submission.hpp"
#include "protocol/json_rpc/message.hpp"

namespace shared_tensor::client {

namespace {

using std::chrono::milliseconds;

constexpr std::chrono::seconds kConnectWithin{5};
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

std::unique_ptr<TaskSubscription> TaskSubscription::open(Core& core, Told told) {
    try {
        const SteadyTime deadline = real_clock().now() + kConnectWithin;
        auto socket = core.connect_web_socket("task.watch", {}, {}, deadline);
        return std::unique_ptr<TaskSubscription>(new TaskSubscription(core, std::move(socket), std::move(told)));
    } catch (const std::exception& error) {
        log::debug("tasks are polled, because the server cannot report them: ", error.what());
        return nullptr;
    }
}

TaskSubscription::TaskSubscription(Core& core, std::shared_ptr<net::WebSocket> socket, Told told)
    : core_(&core),
      socket_(std::move(socket)),
      told_(std::move(told)),
      end_of_client_(core.on_shutdown([weak = std::weak_ptr(socket_)] {
          if (const auto held = weak.lock()) held->abort();
      })),
      thread_([this] { run(); }) {}

TaskSubscription::~TaskSubscription() { socket_->abort(); }

/// The request uses the task's id as its own id, so that an error names the task.
bool TaskSubscription::watch(const std::string& id) {
    std::string text;
    json_rpc::print({"task.watch", {{"id", id}}, id, nullptr}, text);
    const auto kept = std::make_shared<const std::string>(std::move(text));
    return socket_->send(false, {{std::as_bytes(std::span(*kept)), kept}});
}

void TaskSubscription::run() {
    try {
        socket_->run([this](const net::WebSocketMessage& message) { receive(message); });
    } catch (const std::exception& error) {
        log::warn("the connection on which the server reports tasks failed: ", error.what());
    }
    told_({});
}

/// Reads a task from the answer to task.watch or from task.changed. Other messages are ignored, because polling still
/// finds the state of the task.
void TaskSubscription::receive(const net::WebSocketMessage& message) {
    auto parsed = json_rpc::parse_json(message.text());
    auto* json = std::get_if<json_rpc::Json>(&parsed);
    if (json == nullptr || !json->is_object()) return;
    if (json->contains("error")) {
        const auto id = json->value("id", json_rpc::Json());
        return id.is_string() ? told_({id.get<std::string>(), {}}) : void();
    }
    const bool changed = json->value("method", json_rpc::Json()) == "task.changed";
    const auto task = json->find(changed ? "params" : "result");
    if (task == json->end()) return;
    SlotOf<task_status> slot;
    try {
        Incoming::of_value(std::make_shared<const json_rpc::Json>(std::move(*task)), {}, nullptr, core_->ports(), {})
            .result(slot);
    } catch (const ResultMismatch& error) {
        log::debug("the server reported a task in an unknown form: ", error.what());
        return;
    }
    told_({{}, std::move(slot.value)});
}

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
        for (const TaskReport& report : due.reports)
            hear(report);
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
        line_ = TaskSubscription::open(*core_, [this](TaskReport report) {
            state_.with([&](State& state) { state.reports.push_back(std::move(report)); });
            state_.notify_all();
        });
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

void TaskWatcher::hear(const TaskReport& report) {
    if (report.status) {
        const WatchedPointer task = state_.with([&](State& state) -> WatchedPointer {
            const auto found = std::find_if(state.tasks.begin(), state.tasks.end(),
                                            [&](const auto& one) { return one->id == report.status->id; });
            if (found == state.tasks.end()) return nullptr;  // it has ended
            WatchedPointer taken = std::move(*found);
            state.tasks.erase(found);
            return taken;
        });
        if (task != nullptr && take(task, *report.status)) keep({task});
        return;
    }
    const SteadyTime now = core_->clock().now();
    const bool line_broken = report.rejected.empty();
    if (line_broken) {
        line_.reset();
        no_line_before_ = now + kNextLine;
    }
    state_.with([&](State& state) {  // these tasks are polled from now on
        for (const auto& task : state.tasks) {
            if (!line_broken && task->id != report.rejected) continue;
            task->announced &= !line_broken;
            task->told_of = false;
            task->next_look = now;
        }
    });
}

/// Blocks until there is work. Takes due tasks out of the list. At the end returns only `over`.
TaskWatcher::Due TaskWatcher::wait_for_due() {
    auto state = state_.lock();
    for (;;) {
        if (state->stopped) return {.over = true};
        if (!state->reports.empty()) return {.reports = std::exchange(state->reports, {})};
        const std::size_t known = state->tasks.size();
        const auto stirred = [known](const State& now) {
            return now.stopped || !now.reports.empty() || now.tasks.size() != known;
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
    Due due{.tasks = {state->tasks.begin(), end}};
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
        answer = core_->send(request, CallOptions{.timeout = std::chrono::seconds(10), .idempotent = true});
    } catch (...) {
        if (core_->is_shut_down()) return keep(std::move(due));
        for (auto& task : due)
            end_(std::move(task), std::current_exception());
        return;
    }
    std::vector<WatchedPointer> going_on;
    for (std::size_t i = 0; i < due.size(); ++i) {
        SlotOf<task_status> slot;
        try {
            answer->result(request.first_id() + i, "task.get", slot);
        } catch (...) {
            end_(std::move(due[i]), std::current_exception());
            continue;
        }
        if (take(due[i], slot.value)) going_on.push_back(std::move(due[i]));
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
