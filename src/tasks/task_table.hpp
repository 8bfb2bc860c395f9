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

#include "util/clock.hpp"

namespace shared_tensor::tasks {

enum class TaskState { pending, running, completed, failed, cancelled };
std::string_view to_string(TaskState state);
std::optional<TaskState> parse_task_state(std::string_view name);
constexpr bool is_terminal(TaskState state) { return state >= TaskState::completed; }

/// What a task ended with. The rooms above know what is inside; this one counts its bytes.
class Outcome {
public:
    virtual ~Outcome() = default;
    virtual bool failed() const = 0;
    virtual std::uint64_t host_bytes() const = 0;
    virtual std::uint64_t device_bytes() const = 0;
};
using OutcomePointer = std::shared_ptr<const Outcome>;

struct TaskInfo {
    std::string id, method, owner;
    TaskState state = TaskState::pending;
    SystemTime created_at, updated_at;
    std::chrono::milliseconds ttl{0};
    std::optional<double> fraction;  ///< progress, none before the first report
    std::string message;
    OutcomePointer outcome;  ///< of completed and failed tasks
};

using shared_tensor::TaskLimits;

struct NewTask {
    std::string method, owner;
    std::optional<std::chrono::milliseconds> ttl;
    std::function<void()> cancel;  ///< called at most once, without a lock, when the task is cancelled before its end
};

struct TaskFilter {
    std::optional<std::string> owner;  ///< none: everybody's
    std::optional<TaskState> state;
    std::string cursor;       ///< of the page before; empty: from the newest; an invented one finds nothing
    std::size_t limit = 100;  ///< from 1 to 1000, else cut to that
};
struct TaskPage {
    std::vector<TaskInfo> tasks;  ///< newest first
    std::string next_cursor;      ///< empty: no more
};

struct TaskStats {
    std::size_t pending = 0, running = 0, finished = 0;
    std::uint64_t host_bytes = 0, device_bytes = 0, evicted = 0;
};

/// The tasks of a daemon. A terminal state is final: what comes after it is dropped.
///
/// Retention: finished tasks go when their ttl is over, and the longest finished ones first when there are too many or
/// their outcomes hold too many bytes (the newest outcome is kept even if it alone is over the bound); unfinished ones
/// never. Waiting costs only the waiters of that task. Ids are 128 random bits behind "t-". Every step takes a time
/// that grows with the logarithm of the number of tasks at most. Thread safety: all methods from any thread; only
/// wait() blocks.
class TaskTable {
public:
    explicit TaskTable(TaskLimits limits = {}, const Clock& clock = real_clock());
    ~TaskTable();

    /// The id, or nothing when max_tasks unfinished tasks are there already, or after close().
    std::optional<std::string> create(NewTask task);

    /// `changed` is called after a task has started, reported, ended or been cancelled, where that happens, without a
    /// lock; it must not block. Before the first task.
    void on_changed(std::function<void(std::string_view id)> changed);

    void started(std::string_view id);
    /// `fraction` is cut to 0..1 (NaN leaves it as it was), `message` after 1 KiB.
    void progress(std::string_view id, double fraction, std::string_view message);
    /// `outcome` is not null; whether it failed decides between completed and failed.
    void finish(std::string_view id, OutcomePointer outcome);

    /// Nothing for an unknown, expired or (when `owner` is given) somebody else's task: the three look alike.
    std::optional<TaskInfo> get(std::string_view id, const std::optional<std::string>& owner) const;
    TaskPage list(const TaskFilter& filter) const;

    /// Blocks until the task is in a terminal state, `deadline` (on the machine's steady clock), or give_up() returns
    /// true (asked twice a second, without a lock); then as get(). Those who waited see the end even of a task whose
    /// ttl is 0.
    std::optional<TaskInfo> wait(std::string_view id, const std::optional<std::string>& owner, SteadyTime deadline,
                                 const std::function<bool()>& give_up = {}) const;

    /// Cancelled at once and for good; a task that has ended stays as it is. As get().
    std::optional<TaskInfo> cancel(std::string_view id, const std::optional<std::string>& owner);

    /// Takes back a create() whose run was refused before it began: the task was never there. Its cancel is not called.
    void forget(std::string_view id);

    /// Shutdown: unfinished tasks are cancelled, so all waiters wake, and no new one is taken.
    void close();

    void expire();  ///< housekeeping, about once a second: frees what get() does not show any more
    TaskStats stats() const;

private:
    class Impl;
    void tell(std::string_view id) const;

    std::unique_ptr<Impl> impl_;
    std::function<void(std::string_view id)> changed_;
};

}  // namespace shared_tensor::tasks
