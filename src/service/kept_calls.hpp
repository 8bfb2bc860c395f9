#pragma once

#include <memory>
#include <string>
#include <vector>

#include "service/execution.hpp"
#include "tasks/task_table.hpp"
#include "util/guarded.hpp"

namespace shared_tensor::service {

/// Calls that go on though no connection waits for them, and when each of them ends: tasks, notifications, calls with
/// an idempotency key, and calls that stream. Thread-safe.
class KeptCalls {
public:
    using WaiterPointer = std::unique_ptr<Execution::Waiter>;
    /// What keeps such a call running, until it is given up.
    using Keeper = Guarded<WaiterPointer>;
    static void give_up(Keeper& keeper);

    /// Keeps a call running until its outcome is there or the deadline is past.
    void keep(WaiterPointer waiter, SteadyTime deadline);
    /// Gives the task up at its deadline; it ends with -32002 then.
    void end_task_at(SteadyTime deadline, const std::shared_ptr<Keeper>& keeper, std::string task);
    void end_stream_at(SteadyTime deadline, const std::shared_ptr<Execution>& stream);

    /// Ends those that are over their time.
    void end_overdue(SteadyTime now, tasks::TaskTable& tasks);

private:
    struct Limit {
        SteadyTime deadline;
        std::weak_ptr<Keeper> keeper{};
        std::string task{};                 ///< its id, empty for others
        std::weak_ptr<Execution> stream{};  ///< in place of the keeper
    };
    Guarded<std::vector<Limit>> limits_;
};

}  // namespace shared_tensor::service
