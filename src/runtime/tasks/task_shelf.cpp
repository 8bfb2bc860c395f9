#include "runtime/tasks/task_shelf.hpp"

#include <algorithm>

namespace shared_tensor::tasks {

void TaskShelf::move(const Task& task, TaskState to) { of(to).insert(of(task.info.state).extract(task.number)); }

bool TaskShelf::empty() const {
    return std::all_of(by_state_.begin(), by_state_.end(), [](const ByNumber& tasks) { return tasks.empty(); });
}

const Task* TaskShelf::older(std::uint64_t before, std::optional<TaskState> state) const {
    const Task* best = nullptr;
    for (std::size_t i = 0; i < by_state_.size(); ++i) {
        if (state && index(*state) != i) continue;
        const auto behind = by_state_[i].lower_bound(before);
        if (behind == by_state_[i].begin()) continue;
        const Task* candidate = std::prev(behind)->second;
        if (best == nullptr || candidate->number > best->number) best = candidate;
    }
    return best;
}

Task* TaskShelf::unfinished() const {
    for (const TaskState state : {TaskState::pending, TaskState::running}) {
        const ByNumber& tasks = by_state_[index(state)];
        if (!tasks.empty()) return tasks.begin()->second;
    }
    return nullptr;
}

}  // namespace shared_tensor::tasks
