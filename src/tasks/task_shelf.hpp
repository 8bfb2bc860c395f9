#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "tasks/task_table.hpp"
#include "util/guarded.hpp"

namespace shared_tensor::tasks {

/// Where those who wait for one task sleep: the end of the task, once it has come.
using TaskEnd = Guarded<std::optional<TaskInfo>>;

class TaskShelf;
struct Task;
using TasksByEnd = std::map<std::uint64_t, Task*>;
using TasksByExpiry = std::map<std::pair<SteadyTime, std::uint64_t>, Task*>;

/// One task and what the table knows about it.
struct Task {
    TaskInfo info;
    std::uint64_t number = 0;    ///< in the order of creation
    TaskShelf* shelf = nullptr;  ///< its owner's
    std::function<void()> cancel;
    std::shared_ptr<TaskEnd> end;  ///< made by the first waiter, who shares it
    std::uint64_t ended = 0;       ///< in the order of endings, 0 before
    SteadyTime expires_at = SteadyTime::max();
    std::uint64_t host_bytes = 0, device_bytes = 0;
    TasksByEnd::node_type end_node;  ///< made beforehand: an end needs no memory
    TasksByExpiry::node_type expiry_node;
};

/// Tasks by state and number, newest first: pages of a list without looking at tasks that are not on it.
class TaskShelf {
public:
    void add(Task& task) { of(task.info.state).emplace(task.number, &task); }
    void remove(const Task& task) { of(task.info.state).erase(task.number); }
    /// To be called before the task's state changes. Allocates nothing.
    void move(const Task& task, TaskState to);
    bool empty() const;
    std::size_t size(TaskState state) const { return by_state_[index(state)].size(); }

    /// The next older one than `before`, of that state or of any; nullptr when there is none.
    const Task* older(std::uint64_t before, std::optional<TaskState> state) const;
    /// Any task that has not ended; nullptr when there is none.
    Task* unfinished() const;

private:
    using ByNumber = std::map<std::uint64_t, Task*>;
    static std::size_t index(TaskState state) { return static_cast<std::size_t>(state); }
    ByNumber& of(TaskState state) { return by_state_[index(state)]; }

    std::array<ByNumber, 5> by_state_;
};

}  // namespace shared_tensor::tasks
