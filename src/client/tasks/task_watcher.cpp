#include "client/tasks/task_watcher.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/log/log.hpp"
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

bool is_sooner(const WatchedPointer& a, const WatchedPointer& b) { return a->next_look < b->next_look; }

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

std::unique_ptr<TaskSubscription> TaskSubscription::open(Core& core, Told told, SteadyTime until,
                                                         const std::stop_token& stop) {
    try {
        const SteadyTime deadline = std::min(until, real_clock().now() + kConnectWithin);
        auto socket = core.connect_web_socket("task.watch", CallOptions{.stop = stop}, {}, deadline);
        return std::unique_ptr<TaskSubscription>(new TaskSubscription(core, std::move(socket), std::move(told)));
    } catch (const std::exception& error) {
        log::debug("tasks are polled, because the server cannot report them: ", error.what());
        return nullptr;
    }
}

TaskSubscription::TaskSubscription(Core& core, std::shared_ptr<net::WebSocket> socket, Told told)
    : core_(&core), socket_(std::move(socket)), told_(std::move(told)), thread_([this] { run(); }) {}

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
    thread_.with([this](std::jthread& thread) {
        if (!thread.joinable()) thread = std::jthread([this] { watch(); });
    });
    const bool taken = state_.with([&](State& state) {
        if (state.stopped) return false;
        state.tasks.push_back(std::move(task));
        return state.stirred = true;
    });
    if (taken) state_.notify_all();
    return taken;
}

std::vector<WatchedPointer> TaskWatcher::stop() {
    state_.with([](State& state) { state.stopped = state.stirred = true; });
    state_.notify_all();
    thread_.with([](std::jthread& thread) { return std::exchange(thread, {}); });  // waits for its end, unlocked
    return state_.with([](State& state) { return std::exchange(state.tasks, {}); });
}

void TaskWatcher::watch() {
    while (wait_for_work()) {
        announce();
        for (const TaskReport& report : state_.with([](State& state) { return std::exchange(state.reports, {}); }))
            hear(report);
        if (const auto due = due_tasks(); !due.empty()) look(due);
    }
    line_.reset();
}

/// Blocks until a task was added, a report came or a task is due. Returns false at the end.
bool TaskWatcher::wait_for_work() {
    auto state = state_.lock();
    const auto stirred = [](const State& now) { return now.stirred; };
    if (state->tasks.empty()) {
        state.wait(stirred);
    } else {
        const auto first = std::min_element(state->tasks.begin(), state->tasks.end(), &is_sooner);
        state.wait_until((*first)->next_look, stirred);
    }
    state->stirred = state->stopped;
    return !state->stopped;
}

template <class Wanted>
std::vector<WatchedPointer> TaskWatcher::tasks(Wanted wanted) {
    std::vector<WatchedPointer> found;
    state_.with([&](const State& state) {
        if (state.stopped) return;
        std::copy_if(state.tasks.begin(), state.tasks.end(), std::back_inserter(found),
                     [&](const WatchedPointer& task) { return wanted(*task); });
    });
    return found;
}

/// Subscribes to the tasks that are not announced yet.
void TaskWatcher::announce() {
    const auto fresh = tasks([](const WatchedTask& task) { return !task.announced; });
    const SteadyTime now = core_->clock().now();
    if (fresh.empty() || (line_ == nullptr && now < no_line_before_)) return;
    if (line_ == nullptr) {
        no_line_before_ = now + kNextLine;
        line_ = TaskSubscription::open(*core_, [this](TaskReport report) {
            state_.with([&](State& state) {
                state.reports.push_back(std::move(report));
                state.stirred = true;
            });
            state_.notify_all();
        });
        if (line_ == nullptr) return;
    }
    for (const auto& task : fresh) {
        task->announced = task->told_of = line_->watch(task->id);
        schedule(*task, core_->clock().now());
    }
}

void TaskWatcher::hear(const TaskReport& report) {
    if (report.status) {
        for (const auto& task : tasks([&](const WatchedTask& one) { return one.id == report.status->id; }))
            take(task, *report.status);
        return;
    }
    const SteadyTime now = core_->clock().now();
    const bool line_broken = report.rejected.empty();
    if (line_broken) {
        line_.reset();
        no_line_before_ = now + kNextLine;
    }
    for (const auto& task : tasks([&](const WatchedTask& one) { return line_broken || one.id == report.rejected; })) {
        task->announced &= !line_broken;
        task->told_of = false;  // it is polled from now on
        task->next_look = now;
    }
}

/// Returns the tasks that are due, and tasks that are due soon: one request instead of several.
std::vector<WatchedPointer> TaskWatcher::due_tasks() {
    const SteadyTime now = core_->clock().now();
    auto due = tasks([&](const WatchedTask& task) { return task.next_look <= now + kShortest; });
    std::sort(due.begin(), due.end(), &is_sooner);
    if (due.empty() || due.front()->next_look > now) return {};
    due.resize(std::min(due.size(), kMostAtOnce));
    return due;
}

void TaskWatcher::look(const std::vector<WatchedPointer>& due) {
    std::optional<Incoming> answer;
    Outgoing request = core_->compose(Outgoing::Form::batch, due.size());
    std::exception_ptr failed;
    try {
        for (const auto& task : due)
            request.call("task.get", detail::ArgumentsOf(named("id", task->id)));
        request.finish();
        answer.emplace(core_->send(request, CallOptions{.timeout = std::chrono::seconds(10), .idempotent = true}));
    } catch (...) {
        if (core_->is_shut_down()) return;
        failed = std::current_exception();
    }
    for (std::size_t i = 0; i < due.size(); ++i) {
        SlotOf<task_status> slot;
        try {
            if (failed) std::rethrow_exception(failed);
            answer->result(request.first_id() + i, "task.get", slot);
        } catch (...) {
            end(due[i], std::current_exception());
            continue;
        }
        take(due[i], slot.value);
    }
}

/// Reports the status to the user, and an end to `end_`.
void TaskWatcher::take(const WatchedPointer& task, const TaskStatus& status) {
    report(*task, status);
    if (status.ended()) return end(task, nullptr);
    schedule(*task, core_->clock().now());
}

void TaskWatcher::end(const WatchedPointer& task, std::exception_ptr error) {
    state_.with([&](State& state) { std::erase(state.tasks, task); });
    end_(task, std::move(error));
}

}  // namespace shared_tensor::client
