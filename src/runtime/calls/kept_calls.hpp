#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/concurrency/guarded.hpp"
#include "runtime/calls/execution.hpp"
#include "runtime/tasks/task_table.hpp"

namespace shared_tensor::runtime {

/// Keeps calls running that no connection waits for, and ends each at its deadline: tasks, notifications, calls with an
/// idempotency key, and calls that stream. Thread-safe.
class KeptCalls {
public:
    using WaiterPointer = std::unique_ptr<Execution::Waiter>;
    /// Keeps one call running until abandon().
    using Keeper = Guarded<WaiterPointer>;
    static void abandon(Keeper& keeper);

    /// Keeps a call running until its outcome is there or the deadline is past.
    void keep(WaiterPointer waiter, SteadyTime deadline);
    /// Ends the task with -32002 at its deadline.
    void end_task_at(SteadyTime deadline, const std::shared_ptr<Keeper>& keeper, std::string task);
    void end_stream_at(SteadyTime deadline, const std::shared_ptr<Execution>& stream);

    /// Ends the calls whose deadline is over.
    void end_overdue(SteadyTime now, tasks::TaskTable& tasks);

private:
    struct Limit {
        SteadyTime deadline;
        std::weak_ptr<Keeper> keeper{};
        std::string task{};                 ///< the id of the task; empty for other calls
        std::weak_ptr<Execution> stream{};  ///< of a call that streams, which has no keeper
    };
    Guarded<std::vector<Limit>> limits_;
};

}  // namespace shared_tensor::runtime
