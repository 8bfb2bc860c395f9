#include "runtime/calls/kept_calls.hpp"

#include <utility>

namespace shared_tensor::runtime {

void KeptCalls::abandon(Keeper& keeper) {
    WaiterPointer waiter;
    keeper.with([&](WaiterPointer& held) { waiter.swap(held); });
}  // destroys the waiter without the lock, because this may cancel the run

void KeptCalls::keep(WaiterPointer waiter, SteadyTime deadline) {
    const std::shared_ptr<Execution> execution = waiter->execution();
    if (execution->outcome()) return;
    const auto keeper = std::make_shared<Keeper>(std::move(waiter));
    limits_.with([&](auto& limits) { limits.push_back({deadline, keeper}); });
    execution->observe({{}, {}, [keeper](const OutcomePointer&) { abandon(*keeper); }});
}

void KeptCalls::end_task_at(SteadyTime deadline, const std::shared_ptr<Keeper>& keeper, std::string task) {
    limits_.with([&](auto& limits) { limits.push_back({deadline, keeper, std::move(task)}); });
}

void KeptCalls::end_stream_at(SteadyTime deadline, const std::shared_ptr<Execution>& stream) {
    limits_.with([&](auto& limits) { limits.push_back({deadline, {}, {}, stream}); });
}

/// Gives up only the keeper whose deadline is over. Other waiters keep the run going.
void KeptCalls::end_overdue(SteadyTime now, tasks::TaskTable& tasks) {
    std::vector<std::pair<std::shared_ptr<Keeper>, std::string>> overdue;
    std::vector<std::shared_ptr<Execution>> streams;
    limits_.with([&](auto& limits) {
        std::erase_if(limits, [&](Limit& limit) {
            if (limit.keeper.expired() && limit.stream.expired()) return true;
            if (limit.deadline > now) return false;
            if (auto stream = limit.stream.lock()) streams.push_back(std::move(stream));
            if (auto keeper = limit.keeper.lock()) overdue.emplace_back(std::move(keeper), std::move(limit.task));
            return true;
        });
    });
    for (const auto& stream : streams) {
        stream->own_arguments();
        stream->cancel(
            make_outcome(json_rpc::deadline_exceeded("the call's time is over; ask for more with Request-Timeout")));
    }
    for (const auto& [keeper, task] : overdue) {
        if (!task.empty())
            tasks.finish(task, make_outcome(json_rpc::deadline_exceeded("the task's deadline_ms is over")));
        abandon(*keeper);
    }
}

}  // namespace shared_tensor::runtime
