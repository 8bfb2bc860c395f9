#include "runtime/tasks/task_table.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <set>
#include <unordered_map>
#include <utility>

#include "base/bytes/check.hpp"
#include "base/bytes/ids.hpp"
#include "base/concurrency/guarded.hpp"
#include "runtime/tasks/task_shelf.hpp"

namespace shared_tensor::tasks {

namespace {

constexpr std::array<std::string_view, 5> kStateNames = {"pending", "running", "completed", "failed", "cancelled"};
constexpr std::size_t kMaxMessageBytes = 1024;
constexpr std::size_t kMaxPage = 1000;
constexpr std::chrono::milliseconds kAskEvery{500};

struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
};
template <class T>
using ByText = std::unordered_map<std::string, T, Hash, std::equal_to<>>;

/// At most kMaxMessageBytes bytes, without cutting a UTF-8 character in two.
std::string_view shortened(std::string_view message) {
    if (message.size() <= kMaxMessageBytes) return message;
    std::size_t size = kMaxMessageBytes;
    while (size > 0 && (static_cast<unsigned char>(message[size]) & 0xC0) == 0x80)
        --size;
    return message.substr(0, size);
}

/// The task number that the page starts after; 0 for text that list() cannot have made, so the page is empty.
std::uint64_t parse_cursor(std::string_view text) {
    if (text.empty()) return std::numeric_limits<std::uint64_t>::max();
    std::uint64_t number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    return error == std::errc() && end == text.data() + text.size() ? number : 0;
}

}  // namespace

std::string_view to_string(TaskState state) { return kStateNames.at(static_cast<std::size_t>(state)); }

std::optional<TaskState> parse_task_state(std::string_view name) {
    const auto found = std::find(kStateNames.begin(), kStateNames.end(), name);
    if (found == kStateNames.end()) return std::nullopt;
    return static_cast<TaskState>(found - kStateNames.begin());
}

class TaskTable::Impl {
public:
    Impl(TaskLimits limits, const Clock& clock) : limits_(limits), clock_(clock) {
        constexpr std::size_t kMostReserved = 100'000;  // a table that grows when it is large would block all threads
        state_.with([&](State& state) { state.tasks.reserve(std::min(limits.max_tasks, kMostReserved)); });
    }

    std::optional<std::string> create(NewTask wanted);
    void started(std::string_view id);
    void progress(std::string_view id, double fraction, std::string_view message);
    void finish(std::string_view id, OutcomePointer outcome);
    std::optional<TaskInfo> get(std::string_view id, const std::optional<std::string>& owner) const;
    TaskPage list(const TaskFilter& filter) const;
    std::optional<TaskInfo> wait(std::string_view id, const std::optional<std::string>& owner, SteadyTime deadline,
                                 const std::function<bool()>& is_abandoned);
    std::optional<TaskInfo> cancel(std::string_view id, const std::optional<std::string>& owner);
    void forget(std::string_view id);
    void close();
    void expire();
    TaskStats stats() const;

private:
    struct State;
    /// The effects of a change that must happen without the lock: waiters are notified, callbacks called, tasks
    /// destroyed.
    struct Aftermath {
        std::vector<std::unique_ptr<Task>> gone;
        std::function<void()> cancel;
        std::shared_ptr<TaskEnd> end;
        std::optional<TaskInfo> ended;
        void settle();
    };
    template <class Use>
    auto change(Use use) {
        Aftermath after;
        auto result = state_.with([&](State& state) { return use(state, after); });
        after.settle();
        return result;
    }

    struct State {
        ByText<std::unique_ptr<Task>> tasks;
        TaskShelf everybody;
        ByText<TaskShelf> by_owner;
        TasksByEnd by_end;
        TasksByExpiry by_expiry;
        std::uint64_t numbers = 0, endings = 0, newest_outcome = 0;
        std::uint64_t host_bytes = 0, device_bytes = 0, evicted = 0;
        bool closed = false;

        Task* find(std::string_view id) const;
        Task* find(std::string_view id, const std::optional<std::string>& owner, SteadyTime now) const;
        std::size_t unfinished() const;
        void insert(std::unique_ptr<Task> task);
        void move(Task& task, TaskState to, SystemTime at);
        void end(Task& task, TaskState to, SystemTime at, SteadyTime now, Aftermath& after);
        void remove(Task& task, Aftermath& after);
        void keep_bounds(const TaskLimits& limits, Aftermath& after);
    };

    const TaskLimits limits_;
    const Clock& clock_;
    Guarded<State> state_;
};

void TaskTable::Impl::Aftermath::settle() {
    if (end) {
        end->with([&](std::optional<TaskInfo>& told) { told = std::move(ended); });
        end->notify_all();
    }
    if (cancel) cancel();
}

Task* TaskTable::Impl::State::find(std::string_view id) const {
    const auto found = tasks.find(id);
    return found == tasks.end() ? nullptr : found->second.get();
}

Task* TaskTable::Impl::State::find(std::string_view id, const std::optional<std::string>& owner, SteadyTime now) const {
    Task* task = find(id);
    if (task == nullptr || task->expires_at <= now || (owner && task->info.owner != *owner)) return nullptr;
    return task;
}

std::size_t TaskTable::Impl::State::unfinished() const {
    return everybody.size(TaskState::pending) + everybody.size(TaskState::running);
}

void TaskTable::Impl::State::insert(std::unique_ptr<Task> task) {
    Task& added = *task;
    added.number = ++numbers;
    added.shelf = &by_owner[added.info.owner];
    tasks.emplace(added.info.id, std::move(task));
    everybody.add(added);
    added.shelf->add(added);
}

void TaskTable::Impl::State::move(Task& task, TaskState to, SystemTime at) {
    everybody.move(task, to);
    task.shelf->move(task, to);
    task.info.state = to;
    task.info.updated_at = at;
}

void TaskTable::Impl::State::end(Task& task, TaskState to, SystemTime at, SteadyTime now, Aftermath& after) {
    move(task, to, at);
    task.ended = ++endings;
    task.expires_at = now + task.info.ttl;
    task.end_node.key() = task.ended;
    by_end.insert(by_end.end(), std::move(task.end_node));
    task.expiry_node.key() = {task.expires_at, task.ended};
    by_expiry.insert(std::move(task.expiry_node));
    after.cancel = std::move(task.cancel);
    after.end = std::move(task.end);
    if (after.end) after.ended = task.info;
}

void TaskTable::Impl::State::remove(Task& task, Aftermath& after) {
    after.gone.emplace_back();  // first, since it may run out of memory
    by_end.erase(task.ended);
    by_expiry.erase({task.expires_at, task.ended});
    everybody.remove(task);
    task.shelf->remove(task);
    if (task.shelf->empty()) by_owner.erase(by_owner.find(task.info.owner));
    host_bytes -= task.host_bytes;
    device_bytes -= task.device_bytes;
    after.gone.back() = std::move(tasks.extract(tasks.find(task.info.id)).mapped());
}

void TaskTable::Impl::State::keep_bounds(const TaskLimits& limits, Aftermath& after) {
    const auto too_many = [&] { return tasks.size() > limits.max_tasks; };
    const auto too_big = [&] {
        const bool over = host_bytes > limits.max_bytes || device_bytes > limits.max_bytes;
        return over && by_end.begin()->first != newest_outcome;
    };
    while (!by_end.empty() && (too_many() || too_big())) {
        remove(*by_end.begin()->second, after);
        ++evicted;
    }
}

std::optional<std::string> TaskTable::Impl::create(NewTask wanted) {
    using std::chrono::milliseconds;
    auto task = std::make_unique<Task>();
    TaskInfo& info = task->info;
    info.id = random_id("t-");
    info.method = std::move(wanted.method);
    info.owner = std::move(wanted.owner);
    info.ttl = std::clamp(wanted.ttl.value_or(limits_.default_ttl), milliseconds(0), TaskLimits::kMaxTtl);
    info.created_at = info.updated_at = clock_.wall_time();
    task->cancel = std::move(wanted.cancel);
    TasksByEnd ends{{0, task.get()}};
    task->end_node = ends.extract(ends.begin());
    TasksByExpiry expiries{{{}, task.get()}};
    task->expiry_node = expiries.extract(expiries.begin());
    std::string id = info.id;
    const bool taken = change([&](State& state, Aftermath& after) {
        if (state.closed || state.unfinished() >= limits_.max_tasks) return false;
        state.insert(std::move(task));
        state.keep_bounds(limits_, after);
        return true;
    });
    if (!taken) return std::nullopt;
    return id;
}

void TaskTable::Impl::started(std::string_view id) {
    const SystemTime at = clock_.wall_time();
    state_.with([&](State& state) {
        Task* task = state.find(id);
        if (task != nullptr && task->info.state == TaskState::pending) state.move(*task, TaskState::running, at);
    });
}

void TaskTable::Impl::progress(std::string_view id, double fraction, std::string_view message) {
    const SystemTime at = clock_.wall_time();
    std::string text(shortened(message));
    state_.with([&](State& state) {
        Task* task = state.find(id);
        if (task == nullptr || is_terminal(task->info.state)) return;
        if (!std::isnan(fraction)) task->info.fraction = std::clamp(fraction, 0.0, 1.0);
        task->info.message.swap(text);
        task->info.updated_at = at;
    });
}

void TaskTable::Impl::finish(std::string_view id, OutcomePointer outcome) {
    SHARED_TENSOR_CHECK(outcome != nullptr, "a task that was not cancelled ends with an outcome");
    const SystemTime at = clock_.wall_time();
    const SteadyTime now = clock_.now();
    const TaskState to = outcome->failed() ? TaskState::failed : TaskState::completed;
    const std::uint64_t host_bytes = outcome->host_bytes(), device_bytes = outcome->device_bytes();
    std::function<void()> unused;  // destroyed without the lock, never called
    change([&](State& state, Aftermath& after) {
        Task* task = state.find(id);
        if (task == nullptr || is_terminal(task->info.state)) return false;
        task->info.outcome = std::move(outcome);
        state.host_bytes += task->host_bytes = host_bytes;
        state.device_bytes += task->device_bytes = device_bytes;
        state.end(*task, to, at, now, after);
        state.newest_outcome = task->ended;
        unused = std::move(after.cancel);
        after.cancel = nullptr;
        state.keep_bounds(limits_, after);
        return true;
    });
}

std::optional<TaskInfo> TaskTable::Impl::get(std::string_view id, const std::optional<std::string>& owner) const {
    const SteadyTime now = clock_.now();
    return state_.with([&](const State& state) -> std::optional<TaskInfo> {
        const Task* task = state.find(id, owner, now);
        if (task == nullptr) return std::nullopt;
        return task->info;
    });
}

TaskPage TaskTable::Impl::list(const TaskFilter& filter) const {
    const SteadyTime now = clock_.now();
    const std::size_t limit = std::clamp<std::size_t>(filter.limit, 1, kMaxPage);
    const std::uint64_t start = parse_cursor(filter.cursor);
    return state_.with([&](const State& state) {
        TaskPage page;
        const TaskShelf* shelf = &state.everybody;
        if (filter.owner) {
            const auto found = state.by_owner.find(*filter.owner);
            if (found == state.by_owner.end()) return page;
            shelf = &found->second;
        }
        std::uint64_t last = start;
        for (const Task* task = shelf->older(start, filter.state); task != nullptr;
             task = shelf->older(task->number, filter.state)) {
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

std::optional<TaskInfo> TaskTable::Impl::wait(std::string_view id, const std::optional<std::string>& owner,
                                              SteadyTime deadline, const std::function<bool()>& is_abandoned) {
    std::shared_ptr<TaskEnd> end;
    const SteadyTime now = clock_.now();
    state_.with([&](State& state) {
        Task* task = state.find(id, owner, now);
        if (task == nullptr || is_terminal(task->info.state)) return;
        if (!task->end) task->end = std::make_shared<TaskEnd>();
        end = task->end;
    });
    for (bool waits = end != nullptr; waits;) {
        const SteadyTime real_now = real_clock().now();
        const SteadyTime pause = is_abandoned ? std::min(deadline, real_now + kAskEvery) : deadline;
        {
            auto told = end->lock();
            if (told.wait_until(pause, [](const auto& ended) { return ended.has_value(); })) return *told;
        }
        waits = real_clock().now() < deadline && !(is_abandoned && is_abandoned());
    }
    return get(id, owner);
}

std::optional<TaskInfo> TaskTable::Impl::cancel(std::string_view id, const std::optional<std::string>& owner) {
    const SystemTime at = clock_.wall_time();
    const SteadyTime now = clock_.now();
    return change([&](State& state, Aftermath& after) -> std::optional<TaskInfo> {
        Task* task = state.find(id, owner, now);
        if (task == nullptr) return std::nullopt;
        if (!is_terminal(task->info.state)) state.end(*task, TaskState::cancelled, at, now, after);
        return task->info;
    });
}

void TaskTable::Impl::forget(std::string_view id) {
    const SystemTime at = clock_.wall_time();
    const SteadyTime now = clock_.now();
    std::function<void()> unused;  // destroyed without the lock, never called
    change([&](State& state, Aftermath& after) {
        Task* task = state.find(id);
        if (task == nullptr || is_terminal(task->info.state)) return false;
        state.end(*task, TaskState::cancelled, at, now, after);
        unused = std::move(after.cancel);
        after.cancel = nullptr;
        state.remove(*task, after);
        return true;
    });
}

void TaskTable::Impl::close() {
    state_.with([](State& state) { state.closed = true; });
    const SystemTime at = clock_.wall_time();
    const SteadyTime now = clock_.now();
    const auto cancel_one = [&](State& state, Aftermath& after) {
        Task* task = state.everybody.unfinished();
        if (task == nullptr) return false;
        state.end(*task, TaskState::cancelled, at, now, after);
        return true;
    };
    while (change(cancel_one))
        continue;
}

void TaskTable::Impl::expire() {
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

TaskStats TaskTable::Impl::stats() const {
    return state_.with([](const State& state) {
        const TaskShelf& all = state.everybody;
        return TaskStats{all.size(TaskState::pending), all.size(TaskState::running),
                         state.by_end.size(),          state.host_bytes,
                         state.device_bytes,           state.evicted};
    });
}

TaskTable::TaskTable(TaskLimits limits, const Clock& clock) : impl_(std::make_unique<Impl>(limits, clock)) {}
TaskTable::~TaskTable() = default;

std::optional<std::string> TaskTable::create(NewTask task) { return impl_->create(std::move(task)); }
void TaskTable::on_changed(std::function<void(std::string_view id)> changed) { changed_ = std::move(changed); }
void TaskTable::tell(std::string_view id) const {
    if (changed_) changed_(id);
}
void TaskTable::started(std::string_view id) {
    impl_->started(id);
    tell(id);
}
void TaskTable::progress(std::string_view id, double fraction, std::string_view message) {
    impl_->progress(id, fraction, message);
    tell(id);
}
void TaskTable::finish(std::string_view id, OutcomePointer outcome) {
    impl_->finish(id, std::move(outcome));
    tell(id);
}
std::optional<TaskInfo> TaskTable::get(std::string_view id, const std::optional<std::string>& owner) const {
    return impl_->get(id, owner);
}
TaskPage TaskTable::list(const TaskFilter& filter) const { return impl_->list(filter); }
std::optional<TaskInfo> TaskTable::wait(std::string_view id, const std::optional<std::string>& owner,
                                        SteadyTime deadline, const std::function<bool()>& is_abandoned) const {
    return impl_->wait(id, owner, deadline, is_abandoned);
}
std::optional<TaskInfo> TaskTable::cancel(std::string_view id, const std::optional<std::string>& owner) {
    auto info = impl_->cancel(id, owner);
    if (info) tell(id);
    return info;
}
void TaskTable::forget(std::string_view id) { impl_->forget(id); }
void TaskTable::close() { impl_->close(); }
void TaskTable::expire() { impl_->expire(); }
TaskStats TaskTable::stats() const { return impl_->stats(); }

}  // namespace shared_tensor::tasks
