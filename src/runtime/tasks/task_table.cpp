#include "runtime/tasks/task_table.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <map>
#include <tuple>
#include <utility>

#include "base/bytes/check.hpp"
#include "base/bytes/ids.hpp"

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

/// The end of a task, empty before it ended. Threads that wait for the task wait on this.
using TaskEnd = Guarded<std::optional<TaskInfo>>;

struct Task {
    TaskInfo info;
    std::uint64_t number = 0;  ///< order of creation
    std::function<void()> cancel;
    std::shared_ptr<TaskEnd> end;                                     ///< made by the first waiter and shared with it
    std::uint64_t ended = std::numeric_limits<std::uint64_t>::max();  ///< order of endings
    SteadyTime expires_at = SteadyTime::max();
    codec::ValueBytes bytes;  ///< of its outcome
    bool is_ending = false;   ///< a thread writes its end; then it ends
};

/// Gives an entry another key. Does not allocate, so a task can end when there is no memory.
template <class Map>
void change_key(Map& map, const typename Map::key_type& from, const typename Map::key_type& to) {
    auto node = map.extract(from);
    node.key() = to;
    map.insert(std::move(node));
}

/// The effects of a change that must happen without the lock: waiters are notified, callbacks called, tasks destroyed.
struct Aftermath {
    std::vector<std::unique_ptr<Task>> gone;
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

}  // namespace

std::string_view to_string(TaskState state) { return kStateNames.at(static_cast<std::size_t>(state)); }

std::optional<TaskState> parse_task_state(std::string_view name) {
    const auto found = std::find(kStateNames.begin(), kStateNames.end(), name);
    if (found == kStateNames.end()) return std::nullopt;
    return static_cast<TaskState>(found - kStateNames.begin());
}

struct TaskTable::State {
    std::map<std::string, std::unique_ptr<Task>, std::less<>> tasks;
    /// The tasks of each owner, and of all owners (nullopt), by state and number: a page of a list is made without
    /// looking at tasks that are not on it. The owners' names are in the tasks.
    std::map<std::tuple<std::optional<std::string_view>, TaskState, std::uint64_t>, Task*> lists;
    using ByEnd = std::map<std::pair<std::uint64_t, std::uint64_t>, Task*>;  ///< by order of ending, and number
    ByEnd by_end;
    std::map<std::pair<SteadyTime, std::uint64_t>, Task*> by_expiry;
    std::array<std::size_t, kStateNames.size()> counts{};  ///< of the tasks in each state
    std::uint64_t numbers = 0, endings = 0, newest_outcome = 0;
    std::uint64_t evicted = 0;
    codec::ValueBytes bytes;
    struct Part {
        std::size_t tasks = 0;
        codec::ValueBytes bytes;
        ByEnd by_end;
        bool has_half_of_tasks(const TaskLimits& limits) const { return tasks > limits.max_tasks / 2; }
        bool has_half_of_bytes(const TaskLimits& limits) const {
            return std::max(bytes.host, bytes.device) > limits.max_bytes / 2;
        }
    };
    std::map<std::string, Part> parts;  ///< of each owner
    using PartOf = decltype(parts)::value_type;
    const PartOf* most_tasks = nullptr;  ///< that was last above half of the limit
    const PartOf* most_bytes = nullptr;
    bool closed = false;

    Task* find(std::string_view id) const {
        const auto found = tasks.find(id);
        return found == tasks.end() ? nullptr : found->second.get();
    }
    Task* find(std::string_view id, const std::optional<std::string>& owner, SteadyTime now) const {
        Task* task = find(id);
        if (task == nullptr || task->expires_at <= now || (owner && task->info.owner != *owner)) return nullptr;
        return task;
    }
    std::size_t& count(TaskState state) { return counts.at(static_cast<std::size_t>(state)); }
    std::size_t count(TaskState state) const { return counts.at(static_cast<std::size_t>(state)); }
    std::size_t unfinished() const { return count(TaskState::pending) + count(TaskState::running); }

    void insert(std::unique_ptr<Task> task, const TaskLimits& limits);
    void add_bytes(PartOf& part, const codec::ValueBytes& more, const TaskLimits& limits);
    Task& first_to_remove(const TaskLimits& limits) const;
    void move(Task& task, TaskState to, SystemTime at);
    void end(Task& task, TaskState to, SystemTime at, SteadyTime now, Aftermath& after);
    void unlink(const Task& task);
    void remove(Task& task, Aftermath& after);
    void keep_bounds(const TaskLimits& limits, Aftermath& after);
    const Task* older(std::optional<std::string_view> owner, std::optional<TaskState> wanted,
                      std::uint64_t before) const;
};

void TaskTable::State::add_bytes(PartOf& part, const codec::ValueBytes& more, const TaskLimits& limits) {
    for (codec::ValueBytes* const sum : {&bytes, &part.second.bytes}) {
        sum->host += more.host;
        sum->device += more.device;
    }
    if (part.second.has_half_of_tasks(limits)) most_tasks = &part;
    if (part.second.has_half_of_bytes(limits)) most_bytes = &part;
}

void TaskTable::State::insert(std::unique_ptr<Task> task, const TaskLimits& limits) {
    Task& added = *task;
    const TaskInfo& info = added.info;
    PartOf& part = *parts.try_emplace(info.owner).first;
    added.number = ++numbers;
    try {
        lists.emplace(std::tuple(std::nullopt, info.state, added.number), &added);
        lists.emplace(std::tuple(std::string_view(info.owner), info.state, added.number), &added);
        by_end.emplace(std::pair(added.ended, added.number), &added);
        part.second.by_end.emplace(std::pair(added.ended, added.number), &added);
        by_expiry.emplace(std::pair(added.expires_at, added.number), &added);
        tasks.emplace(info.id, std::move(task));
    } catch (...) {
        unlink(added);
        throw;
    }
    ++count(info.state);
    ++part.second.tasks;
    add_bytes(part, added.bytes, limits);
}

void TaskTable::State::unlink(const Task& task) {
    lists.erase({std::nullopt, task.info.state, task.number});
    lists.erase({task.info.owner, task.info.state, task.number});
    by_end.erase({task.ended, task.number});
    if (const auto part = parts.find(task.info.owner); part != parts.end())
        part->second.by_end.erase({task.ended, task.number});
    by_expiry.erase({task.expires_at, task.number});
}

void TaskTable::State::move(Task& task, TaskState to, SystemTime at) {
    TaskInfo& info = task.info;
    change_key(lists, {std::nullopt, info.state, task.number}, {std::nullopt, to, task.number});
    change_key(lists, {info.owner, info.state, task.number}, {info.owner, to, task.number});
    --count(info.state);
    ++count(to);
    info.state = to;
    info.updated_at = at;
}

void TaskTable::State::end(Task& task, TaskState to, SystemTime at, SteadyTime now, Aftermath& after) {
    move(task, to, at);
    for (ByEnd* const ends : {&by_end, &parts.find(task.info.owner)->second.by_end})
        change_key(*ends, {task.ended, task.number}, {endings + 1, task.number});
    task.ended = ++endings;
    change_key(by_expiry, {task.expires_at, task.number}, {now + task.info.ttl, task.number});
    task.expires_at = now + task.info.ttl;
    (to == TaskState::cancelled ? after.cancel : after.unused) = std::move(task.cancel);
    after.end = std::move(task.end);
    if (after.end) after.ended = task.info;
}

void TaskTable::State::remove(Task& task, Aftermath& after) {
    after.gone.emplace_back();  // first, since it may run out of memory
    unlink(task);
    --count(task.info.state);
    const auto part = parts.find(task.info.owner);
    for (codec::ValueBytes* const sum : {&bytes, &part->second.bytes}) {
        sum->host -= task.bytes.host;
        sum->device -= task.bytes.device;
    }
    if (--part->second.tasks == 0) {
        if (most_tasks == &*part) most_tasks = nullptr;
        if (most_bytes == &*part) most_bytes = nullptr;
        parts.erase(part);
    }
    after.gone.back() = std::move(tasks.extract(tasks.find(task.info.id)).mapped());
}

/// The finished task that goes first, if there are any: of the owner who has more than half of what is beyond its
/// limit.
Task& TaskTable::State::first_to_remove(const TaskLimits& limits) const {
    Task* first = nullptr;
    const bool of_tasks = tasks.size() > limits.max_tasks;
    const PartOf* const most = of_tasks ? most_tasks : most_bytes;
    if (most != nullptr && (of_tasks ? most->second.has_half_of_tasks(limits) : most->second.has_half_of_bytes(limits)))
        first = most->second.by_end.begin()->second;
    return first != nullptr && is_terminal(first->info.state) ? *first : *by_end.begin()->second;
}

void TaskTable::State::keep_bounds(const TaskLimits& limits, Aftermath& after) {
    while (unfinished() < tasks.size()) {
        Task* first = &first_to_remove(limits);
        if (tasks.size() <= limits.max_tasks) {
            if (bytes.host <= limits.max_bytes && bytes.device <= limits.max_bytes) return;
            if (first->ended == newest_outcome) first = by_end.begin()->second;
            if (first->ended == newest_outcome) return;
        }
        remove(*first, after);
        ++evicted;
    }
}

/// The newest task before `before` of the owner (nullopt: of any owner) in the state (nullopt: in any); null for none.
const Task* TaskTable::State::older(std::optional<std::string_view> owner, std::optional<TaskState> wanted,
                                    std::uint64_t before) const {
    const Task* newest = nullptr;
    for (std::size_t i = 0; i < counts.size(); ++i) {
        const auto state = static_cast<TaskState>(i);
        const auto behind = lists.lower_bound({owner, state, before});
        if ((wanted && state != *wanted) || behind == lists.begin()) continue;
        const auto& [key, task] = *std::prev(behind);
        if (std::get<0>(key) != owner || std::get<1>(key) != state) continue;
        if (newest == nullptr || task->number > newest->number) newest = task;
    }
    return newest;
}

template <class Use>
auto TaskTable::change(Use use) {
    Aftermath after;
    auto result = state_->with([&](State& state) { return use(state, after); });
    after.settle(records_);
    return result;
}

TaskTable::TaskTable(TaskLimits limits, const Clock& clock, TaskRecords* records)
    : limits_(limits), clock_(clock), records_(records), state_(std::make_unique<Guarded<State>>()) {}
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
        if (state.closed || state.unfinished() >= limits_.max_tasks) return false;
        state.insert(std::move(task), limits_);
        return true;
    });
    if (!taken) return std::nullopt;
    return id;
}

void TaskTable::keep_bounds() {
    change([&](State& state, Aftermath& after) {
        state.keep_bounds(limits_, after);
        return true;
    });
}

void TaskTable::started(std::string_view id) {
    const SystemTime at = clock_.wall_time();
    state_->with([&](State& state) {
        Task* task = state.find(id);
        if (task != nullptr && task->info.state == TaskState::pending) state.move(*task, TaskState::running, at);
    });
    tell(id);
}

void TaskTable::progress(std::string_view id, double fraction, std::string_view message) {
    const SystemTime at = clock_.wall_time();
    std::string text(shortened(message, kMaxMessageBytes));
    state_->with([&](State& state) {
        Task* task = state.find(id);
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
    const bool is_there = change([&](State& state, Aftermath& after) {
        Task* task = state.find(id, owner, now);
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
        task->bytes = bytes;
        state.add_bytes(*state.parts.find(task->info.owner), bytes, limits_);
        state.end(*task, to, at, now, after);
        if (to == TaskState::cancelled) return true;
        state.newest_outcome = task->ended;
        state.keep_bounds(limits_, after);
        return true;
    });
    if (is_there) tell(id);
}

/// Returns false if another thread has ended the task: waits until it has.
bool TaskTable::write_end(std::string_view id, const std::optional<std::string>& owner, TaskState to,
                          const OutcomePointer& outcome, SystemTime at) {
    const SteadyTime now = clock_.now();
    std::optional<TaskInfo> info;
    const bool is_unfinished = state_->with([&](State& state) {
        Task* task = state.find(id, owner, now);
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
    return state_->with([&](const State& state) -> std::optional<TaskInfo> {
        const Task* task = state.find(id, owner, now);
        if (task == nullptr) return std::nullopt;
        return task->info;
    });
}

TaskPage TaskTable::list(const TaskFilter& filter) const {
    const SteadyTime now = clock_.now();
    const std::size_t limit = std::clamp<std::size_t>(filter.limit, 1, kMaxPage);
    const std::uint64_t start = parse_cursor(filter.cursor);
    return state_->with([&](const State& state) {
        TaskPage page;
        std::uint64_t last = start;
        const auto older = [&](std::uint64_t before) { return state.older(filter.owner, filter.state, before); };
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
    state_->with([&](State& state) {
        Task* task = state.find(id, owner, now);
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
    change([&](State& state, Aftermath& after) {
        Task* task = state.find(id);
        if (task == nullptr || is_terminal(task->info.state)) return false;
        state.end(*task, TaskState::cancelled, at, now, after);
        std::swap(after.cancel, after.unused);
        state.remove(*task, after);
        return true;
    });
}

void TaskTable::close() {
    state_->with([](State& state) { state.closed = true; });
    const auto any_unfinished = [](const State& state) {
        return state.unfinished() > 0 ? state.lists.begin()->second->info.id : std::string();
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
    change([&](State& state, Aftermath& after) {
        task->ended = ++state.endings;
        state.insert(std::move(task), limits_);
        state.newest_outcome = state.endings;
        state.keep_bounds(limits_, after);
        return true;
    });
}

void TaskTable::expire() {
    const SteadyTime now = clock_.now();
    constexpr std::size_t kBatch = 256;  // so that the lock is never held for long
    const auto remove_some = [&](State& state, Aftermath& after) {
        while (!state.by_expiry.empty() && state.by_expiry.begin()->first.first <= now) {
            if (after.gone.size() == kBatch) return true;
            state.remove(*state.by_expiry.begin()->second, after);
        }
        return false;
    };
    while (change(remove_some))
        continue;
}

TaskStats TaskTable::stats() const {
    return state_->with([](const State& state) {
        return TaskStats{state.count(TaskState::pending),
                         state.count(TaskState::running),
                         state.tasks.size() - state.unfinished(),
                         state.count(TaskState::completed),
                         state.count(TaskState::failed),
                         state.count(TaskState::cancelled),
                         state.bytes.host,
                         state.bytes.device,
                         state.evicted};
    });
}

}  // namespace shared_tensor::tasks
