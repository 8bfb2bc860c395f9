#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "runtime/tasks/task_table.hpp"
#include "support/manual_clock.hpp"

namespace shared_tensor::test {

inline tasks::OutcomePointer outcome(std::uint64_t host = 0, std::uint64_t device = 0, codec::Value value = {}) {
    return std::make_shared<const runtime::CallOutcome>(std::move(value), codec::ValueBytes{host, device});
}
inline tasks::OutcomePointer failure() { return runtime::make_outcome(json_rpc::internal_error()); }

inline tasks::NewTask task_of(std::string owner = "uid:1", std::function<void()> cancel = {}) {
    return {"work", std::move(owner), std::nullopt, std::move(cancel)};
}

inline std::string finished(tasks::TaskTable& table, tasks::OutcomePointer with = outcome(),
                            std::string owner = "uid:1") {
    const auto id = table.create(task_of(std::move(owner))).value();
    table.started(id);
    table.finish(id, std::move(with));
    return id;
}

inline tasks::TaskState state_of(const tasks::TaskTable& table, const std::string& id) {
    return table.get(id, std::nullopt).value().state;
}

}  // namespace shared_tensor::test
