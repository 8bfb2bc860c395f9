#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/concurrency/guarded.hpp"
#include "runtime/tasks/task_table.hpp"

namespace shared_tensor::tasks {

/// The end of a task, empty before it ended. Threads that wait for the task wait on this.
using TaskEnd = Guarded<std::optional<TaskInfo>>;

class TaskShelf;
struct Task;
using TasksByEnd = std::map<std::uint64_t, Task*>;
using TasksByExpiry = std::map<std::pair<SteadyTime, std::uint64_t>, Task*>;

/// A task and the table's data about it.
struct Task {
    TaskInfo info;
    std::uint64_t number = 0;    ///< order of creation
    TaskShelf* shelf = nullptr;  ///< the shelf of its owner
    std::function<void()> cancel;
    std::shared_ptr<TaskEnd> end;  ///< made by the first waiter and shared with it
    std::uint64_t ended = 0;       ///< order of endings; 0 before the end
    SteadyTime expires_at = SteadyTime::max();
    std::uint64_t host_bytes = 0, device_bytes = 0;
    TasksByEnd::node_type end_node;  ///< allocated in advance: ending a task needs no memory
    TasksByExpiry::node_type expiry_node;
};

/// Tasks by state and number, newest first. A list page can be made without looking at tasks that are not on it.
class TaskShelf {
public:
    void add(Task& task) { of(task.info.state).emplace(task.number, &task); }
    void remove(const Task& task) { of(task.info.state).erase(task.number); }
    /// Call it before the task's state changes. Does not allocate.
    void move(const Task& task, TaskState to);
    bool empty() const;
    std::size_t size(TaskState state) const { return by_state_[index(state)].size(); }

    /// The newest task older than `before` in `state`, or in any state; nullptr if there is none.
    const Task* older(std::uint64_t before, std::optional<TaskState> state) const;
    /// Any task that has not ended; nullptr if there is none.
    Task* unfinished() const;

private:
    using ByNumber = std::map<std::uint64_t, Task*>;
    static std::size_t index(TaskState state) { return static_cast<std::size_t>(state); }
    ByNumber& of(TaskState state) { return by_state_[index(state)]; }

    std::array<ByNumber, 5> by_state_;
};

}  // namespace shared_tensor::tasks
