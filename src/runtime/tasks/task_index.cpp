#include "runtime/tasks/task_index.hpp"

#include <iterator>

namespace shared_tensor::tasks {

namespace {

/// Gives an entry another key. Does not allocate.
template <class Map>
void change_key(Map& map, const typename Map::key_type& from, const typename Map::key_type& to) {
    auto node = map.extract(from);
    node.key() = to;
    map.insert(std::move(node));
}

}  // namespace

Task* TaskIndex::find(std::string_view id) const {
    const auto found = tasks_.find(id);
    return found == tasks_.end() ? nullptr : found->second.get();
}

Task* TaskIndex::find(std::string_view id, const std::optional<std::string>& owner, SteadyTime now) const {
    Task* task = find(id);
    if (task == nullptr || task->expires_at <= now || (owner && task->info.owner != *owner)) return nullptr;
    return task;
}

const Task* TaskIndex::older(std::optional<std::string_view> owner, std::optional<TaskState> wanted,
                             std::uint64_t before) const {
    const Task* newest = nullptr;
    for (std::size_t i = 0; i < counts_.size(); ++i) {
        const auto state = static_cast<TaskState>(i);
        const auto behind = lists_.lower_bound({owner, state, before});
        if ((wanted && state != *wanted) || behind == lists_.begin()) continue;
        const auto& [key, task] = *std::prev(behind);
        if (std::get<0>(key) != owner || std::get<1>(key) != state) continue;
        if (newest == nullptr || task->number > newest->number) newest = task;
    }
    return newest;
}

Task* TaskIndex::expired(SteadyTime now) const {
    return !by_expiry_.empty() && by_expiry_.begin()->first.first <= now ? by_expiry_.begin()->second : nullptr;
}

const Task* TaskIndex::unfinished_task() const {
    return unfinished() > 0 ? lists_.begin()->second : nullptr;  // the states of all owners come first, pending first
}

TaskStats TaskIndex::stats() const {
    return {count(TaskState::pending),
            count(TaskState::running),
            tasks_.size() - unfinished(),
            count(TaskState::completed),
            count(TaskState::failed),
            count(TaskState::cancelled),
            bytes_.host,
            bytes_.device,
            evicted_};
}

void TaskIndex::add_bytes(Part& part, const codec::ValueBytes& more) {
    for (codec::ValueBytes* const sum : {&bytes_, &part.bytes}) {
        sum->host += more.host;
        sum->device += more.device;
    }
    if (part.tasks > limits_.max_tasks / 2) most_tasks_ = &part;
    if (part.bytes.host > limits_.max_bytes / 2) most_host_ = &part;
    if (part.bytes.device > limits_.max_bytes / 2) most_device_ = &part;
}

void TaskIndex::insert(TaskPointer task) {
    Task& added = *task;
    const TaskInfo& info = added.info;
    Part& part = parts_.try_emplace(info.owner).first->second;
    added.number = ++numbers_;
    try {
        lists_.emplace(std::tuple(std::nullopt, info.state, added.number), &added);
        lists_.emplace(std::tuple(std::string_view(info.owner), info.state, added.number), &added);
        by_end_.emplace(std::pair(added.ended, added.number), &added);
        part.by_end.emplace(std::pair(added.ended, added.number), &added);
        by_expiry_.emplace(std::pair(added.expires_at, added.number), &added);
        tasks_.emplace(info.id, std::move(task));
    } catch (...) {
        unlink(added);
        throw;
    }
    ++count(info.state);
    ++part.tasks;
    add_bytes(part, added.bytes);
}

void TaskIndex::insert_ended(TaskPointer task) {
    task->ended = ++endings_;
    insert(std::move(task));
    newest_outcome_ = endings_;
}

void TaskIndex::unlink(const Task& task) {
    lists_.erase({std::nullopt, task.info.state, task.number});
    lists_.erase({task.info.owner, task.info.state, task.number});
    by_end_.erase({task.ended, task.number});
    if (const auto part = parts_.find(task.info.owner); part != parts_.end())
        part->second.by_end.erase({task.ended, task.number});
    by_expiry_.erase({task.expires_at, task.number});
}

void TaskIndex::move(Task& task, TaskState to, SystemTime at) {
    TaskInfo& info = task.info;
    change_key(lists_, {std::nullopt, info.state, task.number}, {std::nullopt, to, task.number});
    change_key(lists_, {info.owner, info.state, task.number}, {info.owner, to, task.number});
    --count(info.state);
    ++count(to);
    info.state = to;
    info.updated_at = at;
}

void TaskIndex::end(Task& task, TaskState to, const codec::ValueBytes& bytes, SystemTime at, SteadyTime now) {
    move(task, to, at);
    Part& part = parts_.find(task.info.owner)->second;
    for (ByEnd* const ends : {&by_end_, &part.by_end})
        change_key(*ends, {task.ended, task.number}, {endings_ + 1, task.number});
    task.ended = ++endings_;
    change_key(by_expiry_, {task.expires_at, task.number}, {now + task.info.ttl, task.number});
    task.expires_at = now + task.info.ttl;
    task.bytes = bytes;
    add_bytes(part, bytes);
    if (to != TaskState::cancelled) newest_outcome_ = task.ended;
}

void TaskIndex::remove(Task& task, std::vector<TaskPointer>& gone) {
    gone.emplace_back();
    unlink(task);
    --count(task.info.state);
    const auto part = parts_.find(task.info.owner);
    for (codec::ValueBytes* const sum : {&bytes_, &part->second.bytes}) {
        sum->host -= task.bytes.host;
        sum->device -= task.bytes.device;
    }
    if (--part->second.tasks == 0) {
        for (const Part** const most : {&most_tasks_, &most_host_, &most_device_}) {
            if (*most == &part->second) *most = nullptr;
        }
        parts_.erase(part);
    }
    gone.back() = std::move(tasks_.extract(tasks_.find(task.info.id)).mapped());
}

/// The owner that has more than half of what is beyond its limit; null for none.
const TaskIndex::Part* TaskIndex::owner_above_half() const {
    const auto above = [](const Part* part, std::uint64_t has, std::uint64_t limit) {
        return has > limit / 2 ? part : nullptr;
    };
    if (tasks_.size() > limits_.max_tasks)
        return most_tasks_ != nullptr ? above(most_tasks_, most_tasks_->tasks, limits_.max_tasks) : nullptr;
    if (bytes_.host > limits_.max_bytes)
        return most_host_ != nullptr ? above(most_host_, most_host_->bytes.host, limits_.max_bytes) : nullptr;
    return most_device_ != nullptr ? above(most_device_, most_device_->bytes.device, limits_.max_bytes) : nullptr;
}

/// The task that goes first: the longest finished one of owner_above_half(); if it has none, that of all owners.
Task& TaskIndex::first_to_remove() const {
    const Part* const most = owner_above_half();
    Task* const first = most != nullptr ? most->by_end.begin()->second : nullptr;
    return first != nullptr && is_terminal(first->info.state) ? *first : *by_end_.begin()->second;
}

void TaskIndex::keep_bounds(std::vector<TaskPointer>& gone) {
    while (unfinished() < tasks_.size()) {
        Task* first = &first_to_remove();
        if (tasks_.size() <= limits_.max_tasks) {
            if (bytes_.host <= limits_.max_bytes && bytes_.device <= limits_.max_bytes) return;
            if (first->ended == newest_outcome_) first = by_end_.begin()->second;
            if (first->ended == newest_outcome_) return;
        }
        remove(*first, gone);
        ++evicted_;
    }
}

}  // namespace shared_tensor::tasks
