#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <shared_tensor/limits.hpp>

#include "base/concurrency/clock.hpp"
#include "base/concurrency/guarded.hpp"
#include "runtime/calls/outcome.hpp"

namespace shared_tensor::tasks {

enum class TaskState { pending, running, completed, failed, cancelled };
std::string_view to_string(TaskState state);
std::optional<TaskState> parse_task_state(std::string_view name);
constexpr bool is_terminal(TaskState state) { return state >= TaskState::completed; }

using runtime::OutcomePointer;

struct TaskInfo {
    std::string id, method, owner;
    TaskState state = TaskState::pending;
    SystemTime created_at, updated_at;
    std::chrono::milliseconds ttl{0};
    std::optional<double> fraction;  ///< progress; nullopt before the first report
    std::string message;
    OutcomePointer outcome;  ///< for completed and failed tasks
};

using shared_tensor::TaskLimits;

struct NewTask {
    std::string method, owner;
    std::optional<std::chrono::milliseconds> ttl;
    std::function<void()> cancel;  ///< called at most once, without a lock, if the task is cancelled before its end
};

struct TaskFilter {
    std::optional<std::string> owner;  ///< nullopt: tasks of all owners
    std::optional<TaskState> state;
    std::string cursor;       ///< next_cursor of the previous page; empty: from the newest; invalid: no tasks
    std::size_t limit = 100;  ///< limited to 1..1000
};
struct TaskPage {
    std::vector<TaskInfo> tasks;  ///< newest first
    std::string next_cursor;      ///< empty if there are no more tasks
};

struct TaskStats {
    std::size_t pending = 0, running = 0, finished = 0;  ///< finished: in any of the three states below
    std::size_t completed = 0, failed = 0, cancelled = 0;
    std::uint64_t host_bytes = 0, device_bytes = 0, evicted = 0;
};

/// Where a table writes the ends of its tasks. Thread safety: all methods from any thread.
class TaskRecords {
public:
    virtual ~TaskRecords() = default;
    /// Called before anybody can know that the task has ended. `task` is as it will be then.
    virtual void task_ended(const TaskInfo& task) noexcept = 0;
    /// The task has been removed. Also called for tasks whose end was never written.
    virtual void task_gone(const std::string& id) noexcept = 0;
};

/// The tasks of a daemon. A terminal state is final: later changes are ignored.
///
/// Retention: a finished task is removed when its ttl is over. If there are too many tasks, or their outcomes take too
/// many bytes, the tasks that finished first are removed first: of the owner that has more than half of the tasks or of
/// the bytes, if there is one. The newest outcome is kept even if it alone exceeds the limit of bytes. Unfinished tasks
/// are never removed. A change wakes only threads that wait for that task. An id is "t-" and 128 random bits. Each step
/// takes at most logarithmic time in the number of tasks. Thread safety: all methods from any thread; only wait()
/// blocks.
class TaskTable {
public:
    /// `records`, if not null, outlives the table.
    explicit TaskTable(TaskLimits limits = {}, const Clock& clock = real_clock(), TaskRecords* records = nullptr);
    ~TaskTable();

    /// Returns the id; nullopt if there are max_tasks unfinished tasks, or after close(). Call keep_bounds() or
    /// forget() when it is known whether the run of the task was accepted.
    std::optional<std::string> create(NewTask task);
    void keep_bounds();  ///< removes finished tasks while there are too many tasks

    /// Sets a callback, called after a task has started, reported progress, ended or been cancelled. It runs on the
    /// thread of that change, without a lock, and must not block. Set it before the first task.
    void on_changed(std::function<void(std::string_view id)> changed);

    void started(std::string_view id);
    /// `fraction` is limited to 0..1 (NaN changes nothing), `message` to 1 KiB.
    void progress(std::string_view id, double fraction, std::string_view message);
    /// `outcome` must not be null. Its failed() selects the state: failed or completed.
    void finish(std::string_view id, OutcomePointer outcome);

    /// Nullopt for an unknown task, an expired task, and (if `owner` is given) a task of another owner: callers cannot
    /// tell which.
    std::optional<TaskInfo> get(std::string_view id, const std::optional<std::string>& owner) const;
    TaskPage list(const TaskFilter& filter) const;

    /// Blocks until the task is in a terminal state, the deadline (real steady clock) is over, or is_abandoned()
    /// returns true. Calls is_abandoned() twice a second, without a lock. Returns as get() does, but a thread that
    /// waited gets the end of the task even if its ttl is 0.
    std::optional<TaskInfo> wait(std::string_view id, const std::optional<std::string>& owner, SteadyTime deadline,
                                 const std::function<bool()>& is_abandoned = {}) const;

    /// Cancels the task at once and for good; a task that has ended does not change. Returns as get() does. If the end
    /// of the task is being written, waits for that.
    std::optional<TaskInfo> cancel(std::string_view id, const std::optional<std::string>& owner);

    /// Undoes create() if the run was rejected before it began: the task disappears. Does not call its cancel.
    void forget(std::string_view id);

    /// Adds a task that ended in an earlier process. Its ttl counts from updated_at.
    void restore(TaskInfo task);

    /// For shutdown: cancels unfinished tasks, which wakes all waiters, and rejects new tasks.
    void close();

    void expire();  ///< maintenance, about once a second: frees expired tasks
    TaskStats stats() const;

private:
    struct State;
    template <class Use>
    auto change(Use use);
    void end(std::string_view id, const std::optional<std::string>& owner, TaskState to, OutcomePointer outcome,
             std::optional<TaskInfo>* copy);
    bool write_end(std::string_view id, const std::optional<std::string>& owner, TaskState to,
                   const OutcomePointer& outcome, SystemTime at);
    void tell(std::string_view id) const;

    const TaskLimits limits_;
    const Clock& clock_;
    TaskRecords* const records_;
    const std::unique_ptr<Guarded<State>> state_;
    std::function<void(std::string_view id)> changed_;
};

}  // namespace shared_tensor::tasks
