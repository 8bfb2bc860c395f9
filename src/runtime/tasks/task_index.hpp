#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "runtime/tasks/task_table.hpp"

namespace shared_tensor::tasks {

/// The end of a task, empty before it ended. Threads that wait for the task wait on this.
using TaskEnd = Guarded<std::optional<TaskInfo>>;

struct Task {
    TaskInfo info;
    std::function<void()> cancel;
    std::shared_ptr<TaskEnd> end;  ///< made by the first waiter and shared with it
    bool is_ending = false;        ///< a thread writes its end; then it ends
    /// The index alone changes these and the state while it has the task.
    std::uint64_t number = 0;                                         ///< order of creation
    std::uint64_t ended = std::numeric_limits<std::uint64_t>::max();  ///< order of endings
    SteadyTime expires_at = SteadyTime::max();
    codec::ValueBytes bytes;  ///< of its outcome
};
using TaskPointer = std::unique_ptr<Task>;

/// The tasks of a table by id, owner, state, end and expiry, and which of them goes first when there are too many. Each
/// step takes at most logarithmic time. Thread safety: none; the table has a lock.
class TaskIndex {
public:
    explicit TaskIndex(const TaskLimits& limits) : limits_(limits) {}

    Task* find(std::string_view id) const;
    /// As TaskTable::get() says.
    Task* find(std::string_view id, const std::optional<std::string>& owner, SteadyTime now) const;
    /// The newest task before `before` of the owner (nullopt: of any owner) in the state (nullopt: in any); null for
    /// none.
    const Task* older(std::optional<std::string_view> owner, std::optional<TaskState> wanted,
                      std::uint64_t before) const;
    /// A task that has expired; null for none.
    Task* expired(SteadyTime now) const;
    /// A task that has not ended; null for none.
    const Task* unfinished_task() const;
    std::size_t unfinished() const { return count(TaskState::pending) + count(TaskState::running); }
    TaskStats stats() const;

    void insert(TaskPointer task);
    /// A task whose state, outcome, bytes and expiry are set.
    void insert_ended(TaskPointer task);
    void start(Task& task, SystemTime at) { move(task, TaskState::running, at); }
    /// `to` is a terminal state, `bytes` are those of its outcome. Does not allocate, so that a task can end when there
    /// is no memory.
    void end(Task& task, TaskState to, const codec::ValueBytes& bytes, SystemTime at, SteadyTime now);
    /// Moves the task into `gone`. Allocates only before it changes anything.
    void remove(Task& task, std::vector<TaskPointer>& gone);
    /// Removes finished tasks as TaskTable's retention says.
    void keep_bounds(std::vector<TaskPointer>& gone);

private:
    using ByEnd = std::map<std::pair<std::uint64_t, std::uint64_t>, Task*>;  ///< by order of ending, and number
    /// The tasks of an owner.
    struct Part {
        std::size_t tasks = 0;
        codec::ValueBytes bytes;
        ByEnd by_end;
    };
    using Parts = std::map<std::string, Part>;

    std::size_t& count(TaskState state) { return counts_.at(static_cast<std::size_t>(state)); }
    std::size_t count(TaskState state) const { return counts_.at(static_cast<std::size_t>(state)); }
    void add_bytes(Part& part, const codec::ValueBytes& more);
    void move(Task& task, TaskState to, SystemTime at);
    void unlink(const Task& task);
    const Part* owner_above_half() const;
    Task& first_to_remove() const;

    const TaskLimits limits_;
    std::map<std::string, TaskPointer, std::less<>> tasks_;
    /// The tasks of each owner, and of all owners (nullopt), by state and number: a page of a list is made without
    /// looking at tasks that are not on it. The owners' names are in the tasks.
    std::map<std::tuple<std::optional<std::string_view>, TaskState, std::uint64_t>, Task*> lists_;
    ByEnd by_end_;
    std::map<std::pair<SteadyTime, std::uint64_t>, Task*> by_expiry_;
    std::array<std::size_t, 5> counts_{};  ///< of the tasks in each state
    std::uint64_t numbers_ = 0, endings_ = 0, newest_outcome_ = 0, evicted_ = 0;
    codec::ValueBytes bytes_;
    Parts parts_;  ///< of each owner
    /// The owner that was last above half of each limit.
    const Part *most_tasks_ = nullptr, *most_host_ = nullptr, *most_device_ = nullptr;
};

}  // namespace shared_tensor::tasks
