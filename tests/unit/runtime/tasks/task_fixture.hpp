#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runtime/tasks/task_table.hpp"
#include "support/manual_clock.hpp"

namespace shared_tensor::test {

using Ids = std::vector<std::string>;

inline tasks::OutcomePointer outcome(std::uint64_t host = 0, std::uint64_t device = 0, codec::Value value = {}) {
    return std::make_shared<const runtime::CallOutcome>(std::move(value), codec::ValueBytes{host, device});
}
inline tasks::OutcomePointer failure() { return runtime::make_outcome(json_rpc::internal_error()); }

/// A table of tasks of uid:1, unless another owner is named.
struct Tasks {
    explicit Tasks(TaskLimits limits = {}) : table(limits, clock) {}

    std::string make(std::string owner = "uid:1", std::function<void()> cancel = {}) {
        const auto id = table.create({"work", std::move(owner), std::nullopt, std::move(cancel)}).value();
        table.keep_bounds();
        return id;
    }
    std::string make_for(std::chrono::milliseconds ttl) { return table.create({"work", "uid:1", ttl, {}}).value(); }
    std::string running() {
        const auto id = make();
        table.started(id);
        return id;
    }
    std::string finished(tasks::OutcomePointer with = outcome(), std::string owner = "uid:1") {
        const auto id = make(std::move(owner));
        table.started(id);
        table.finish(id, std::move(with));
        return id;
    }
    bool rejects_new() { return !table.create({"work", "uid:1", std::nullopt, {}}); }
    bool knows(const std::string& id) const { return table.get(id, std::nullopt).has_value(); }
    tasks::TaskInfo info(const std::string& id) const { return table.get(id, std::nullopt).value(); }
    tasks::TaskState state(const std::string& id) const { return info(id).state; }
    Ids list(const tasks::TaskFilter& filter = {}) const {
        Ids ids;
        for (const auto& task : table.list(filter).tasks)
            ids.push_back(task.id);
        return ids;
    }

    ManualClock clock;
    tasks::TaskTable table;
};

}  // namespace shared_tensor::test
