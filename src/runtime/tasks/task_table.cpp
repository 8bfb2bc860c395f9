#include "runtime/tasks/task_table.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <utility>

#include "base/bytes/check.hpp"
#include "base/bytes/ids.hpp"
#include "runtime/tasks/task_index.hpp"

namespace shared_tensor::tasks {

namespace {

constexpr std::array<std::string_view, 5> kStateNames = {"pending", "running", "completed", "failed", "cancelled"};
constexpr std::size_t kMaxMessageBytes = 1024;
constexpr std::size_t kMaxPage = 1000;

/// The task number that the page starts after; 0 for text that list() cannot have made, so the page is empty.
std::uint64_t parse_cursor(std::string_view text) {
    if (text.empty()) return std::numeric_limits<std::uint64_t>::max();
    std::uint64_t number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    return error == std::errc() && end == text.data() + text.size() ? number : 0;
}

/// The effects of a change that must happen without the lock: waiters are notified, callbacks called, tasks destroyed.
struct Aftermath {
    std::vector<TaskPointer> gone;
    std::function<void()> cancel, unused;  ///< `unused` is only destroyed
    std::shared_ptr<TaskEnd> end;
    std::optional<TaskInfo> ended;
    void settle(TaskRecords* records) {
        for (const auto& task : gone) {
            if (records != nullptr) records->task_gone(task->info.id);
        }
        if (end) {
            end->with([&](std::optional<TaskInfo>& told) { told = std::move(ended); });
            end->notify_all();
        }
        if (cancel) cancel();
    }
};

/// Ends a task and leaves what follows to `after`. Does not allocate if nobody waits for the task.
void end_task(TaskIndex& index, Task& task, TaskState to, const codec::ValueBytes& bytes, SystemTime at, SteadyTime now,
              Aftermath& after) {
    index.end(task, to, bytes, at, now);
    (to == TaskState::cancelled ? after.cancel : after.unused) = std::move(task.cancel);
    after.end = std::move(task.end);
    if (after.end) after.ended = task.info;
}

}  // namespace

std::string_view to_string(TaskState state) { return kStateNames.at(static_cast<std::size_t>(state)); }

std::optional<TaskState> parse_task_state(std::string_view name) {
    const auto found = std::find(kStateNames.begin(), kStateNames.end(), name);
    if (found == kStateNames.end()) return std::nullopt;
    return static_cast<TaskState>(found - kStateNames.begin());
}

struct TaskTable::State : TaskIndex {
    using TaskIndex::TaskIndex;
    bool is_closed = false;
};

template <class Use>
auto TaskTable::change(Use use) {
    Aftermath after;
    auto result = state_->with([&](State& state) { return use(state, after); });
    after.settle(records_);
    return result;
}

TaskTable::TaskTable(TaskLimits limits, const Clock& clock, TaskRecords* records)
    : limits_(limits), clock_(clock), records_(records), state_(std::make_unique<Guarded<State>>(limits)) {}
TaskTable::~TaskTable() = default;

void TaskTable::on_changed(std::function<void(std::string_view id)> changed) { changed_ = std::move(changed); }

void TaskTable::tell(std::string_view id) const {
    if (changed_) changed_(id);
}

std::optional<std::string> TaskTable::create(NewTask wanted) {
    using std::chrono::milliseconds;
    auto task = std::make_unique<Task>();
    TaskInfo& info = task->info;
    info.id = random_id("t-");
    info.method = std::move(wanted.method);
    info.owner = std::move(wanted.owner);
    info.ttl = std::clamp(wanted.ttl.value_or(limits_.default_ttl), milliseconds(0), TaskLimits::kMaxTtl);
    info.created_at = info.updated_at = clock_.wall_time();
    task->cancel = std::move(wanted.cancel);
    std::string id = info.id;
    const bool taken = change([&](State& state, Aftermath& /*after*/) {
        if (state.is_closed || state.unfinished() >= limits_.max_tasks) return false;
        state.insert(std::move(task));
        return true;
    });
    if (!taken) return std::nullopt;
    return id;
}

void TaskTable::keep_bounds() {
    change([&](TaskIndex& index, Aftermath& after) {
        index.keep_bounds(after.gone);
        return true;
    });
}

void TaskTable::started(std::string_view id) {
    const SystemTime at = clock_.wall_time();
    state_->with([&](TaskIndex& index) {
        Task* task = index.find(id);
        if (task != nullptr && task->info.state == TaskState::pending) index.start(*task, at);
    });
    tell(id);
}

void TaskTable::progress(std::string_view id, double fraction, std::string_view message) {
    const SystemTime at = clock_.wall_time();
    std::string text(shortened(message, kMaxMessageBytes));
    state_->with([&](TaskIndex& index) {
        Task* task = index.find(id);
        if (task == nullptr || is_terminal(task->info.state)) return;
        if (!std::isnan(fraction)) task->info.fraction = std::clamp(fraction, 0.0, 1.0);
        task->info.message.swap(text);
        task->info.updated_at = at;
    });
    tell(id);
}

void TaskTable::finish(std::string_view id, OutcomePointer outcome) {
    SHARED_TENSOR_CHECK(outcome != nullptr, "a task that was not cancelled ends with an outcome");
    const TaskState to = outcome->failed() ? TaskState::failed : TaskState::completed;
    end(id, std::nullopt, to, std::move(outcome), nullptr);
}

/// Ends a task that has not ended. `outcome` is null for a cancelled task. `copy`, if not null, gets what the task is
/// then; nothing if there is no such task.
void TaskTable::end(std::string_view id, const std::optional<std::string>& owner, TaskState to, OutcomePointer outcome,
                    std::optional<TaskInfo>* copy) {
    const SystemTime at = clock_.wall_time();
    const SteadyTime now = clock_.now();
    if (records_ != nullptr && !write_end(id, owner, to, outcome, at)) {
        if (copy != nullptr) *copy = get(id, owner);
        return;
    }
    const codec::ValueBytes bytes = outcome != nullptr ? outcome->bytes() : codec::ValueBytes{};
    const bool is_there = change([&](TaskIndex& index, Aftermath& after) {
        Task* task = index.find(id, owner, now);
        if (task == nullptr) return false;
        if (is_terminal(task->info.state)) {
            if (copy != nullptr) *copy = task->info;
            return true;
        }
        if (copy != nullptr) {  // before the end, because a copy may need memory that is not there
            *copy = task->info;
            (*copy)->state = to;
            (*copy)->updated_at = at;
        }
        task->info.outcome = std::move(outcome);
        end_task(index, *task, to, bytes, at, now, after);
        if (to != TaskState::cancelled) index.keep_bounds(after.gone);
        return true;
    });
    if (is_there) tell(id);
}

/// Returns false if another thread has ended the task: waits until it has.
bool TaskTable::write_end(std::string_view id, const std::optional<std::string>& owner, TaskState to,
                          const OutcomePointer& outcome, SystemTime at) {
    const SteadyTime now = clock_.now();
    std::optional<TaskInfo> info;
    const bool is_unfinished = state_->with([&](TaskIndex& index) {
        Task* task = index.find(id, owner, now);
        if (task == nullptr || is_terminal(task->info.state)) return false;
        if (!task->is_ending) info = task->info;
        task->is_ending = true;
        return true;
    });
    if (!info) {
        if (is_unfinished) (void)wait(id, owner, SteadyTime::max());
        return false;
    }
    info->state = to;
    info->updated_at = at;
    info->outcome = outcome;
    records_->task_ended(*info);
    return true;
}

std::optional<TaskInfo> TaskTable::get(std::string_view id, const std::optional<std::string>& owner) const {
    const SteadyTime now = clock_.now();
    return state_->with([&](const TaskIndex& index) -> std::optional<TaskInfo> {
        const Task* task = index.find(id, owner, now);
        if (task == nullptr) return std::nullopt;
        return task->info;
    });
}

TaskPage TaskTable::list(const TaskFilter& filter) const {
    const SteadyTime now = clock_.now();
    const std::size_t limit = std::clamp<std::size_t>(filter.limit, 1, kMaxPage);
    const std::uint64_t start = parse_cursor(filter.cursor);
    return state_->with([&](const TaskIndex& index) {
        TaskPage page;
        std::uint64_t last = start;
        const auto older = [&](std::uint64_t before) { return index.older(filter.owner, filter.state, before); };
        for (const Task* task = older(start); task != nullptr; task = older(task->number)) {
            if (task->expires_at <= now) continue;
            if (page.tasks.size() == limit) {
                page.next_cursor = std::to_string(last);
                break;
            }
            page.tasks.push_back(task->info);
            last = task->number;
        }
        return page;
    });
}

std::optional<TaskInfo> TaskTable::wait(std::string_view id, const std::optional<std::string>& owner,
                                        SteadyTime deadline, const std::function<bool()>& is_abandoned) const {
    std::shared_ptr<TaskEnd> end;
    const SteadyTime now = clock_.now();
    state_->with([&](TaskIndex& index) {
        Task* task = index.find(id, owner, now);
        if (task == nullptr || is_terminal(task->info.state)) return;
        if (!task->end) task->end = std::make_shared<TaskEnd>();
        end = task->end;
    });
    const auto has_ended = [](const std::optional<TaskInfo>& ended) { return ended.has_value(); };
    if (end != nullptr && wait_or_abandon(*end, deadline, is_abandoned, has_ended))
        return end->with([](const std::optional<TaskInfo>& ended) { return ended; });
    return get(id, owner);
}

std::optional<TaskInfo> TaskTable::cancel(std::string_view id, const std::optional<std::string>& owner) {
    std::optional<TaskInfo> ended;
    end(id, owner, TaskState::cancelled, nullptr, &ended);
    return ended;
}

void TaskTable::forget(std::string_view id) {
    const SystemTime at = clock_.wall_time();
    const SteadyTime now = clock_.now();
    change([&](TaskIndex& index, Aftermath& after) {
        Task* task = index.find(id);
        if (task == nullptr || is_terminal(task->info.state)) return false;
        end_task(index, *task, TaskState::cancelled, {}, at, now, after);
        std::swap(after.cancel, after.unused);
        index.remove(*task, after.gone);
        return true;
    });
}

void TaskTable::close() {
    state_->with([](State& state) { state.is_closed = true; });
    const auto any_unfinished = [](const TaskIndex& index) {
        const Task* const task = index.unfinished_task();
        return task != nullptr ? task->info.id : std::string();
    };
    for (std::string id = state_->with(any_unfinished); !id.empty(); id = state_->with(any_unfinished))
        (void)cancel(id, std::nullopt);
}

void TaskTable::restore(TaskInfo info) {
    const auto age = std::chrono::duration_cast<SteadyTime::duration>(clock_.wall_time() - info.updated_at);
    const SteadyTime expires = clock_.now() + info.ttl - std::max(age, SteadyTime::duration(0));
    const codec::ValueBytes bytes = info.outcome != nullptr ? info.outcome->bytes() : codec::ValueBytes{};
    auto task = std::make_unique<Task>();
    task->info = std::move(info);
    task->expires_at = expires;
    task->bytes = bytes;
    change([&](TaskIndex& index, Aftermath& after) {
        index.insert_ended(std::move(task));
        index.keep_bounds(after.gone);
        return true;
    });
}

void TaskTable::expire() {
    const SteadyTime now = clock_.now();
    constexpr std::size_t kBatch = 256;  // so that the lock is never held for long
    const auto remove_some = [&](TaskIndex& index, Aftermath& after) {
        while (Task* const task = index.expired(now)) {
            if (after.gone.size() == kBatch) return true;
            index.remove(*task, after.gone);
        }
        return false;
    };
    while (change(remove_some))
        continue;
}

TaskStats TaskTable::stats() const {
    return state_->with([](const TaskIndex& index) { return index.stats(); });
}

}  // namespace shared_tensor::tasks
