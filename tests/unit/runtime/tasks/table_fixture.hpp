#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "runtime/tasks/task_table.hpp"
#include "support/manual_clock.hpp"

namespace shared_tensor::test {

class FakeOutcome final : public tasks::Outcome {
public:
    explicit FakeOutcome(std::uint64_t host = 0, std::uint64_t device = 0, bool failure = false)
        : host_(host), device_(device), failure_(failure) {}
    bool failed() const override { return failure_; }
    std::uint64_t host_bytes() const override { return host_; }
    std::uint64_t device_bytes() const override { return device_; }

private:
    std::uint64_t host_, device_;
    bool failure_;
};

inline tasks::OutcomePointer outcome(std::uint64_t host = 0, std::uint64_t device = 0) {
    return std::make_shared<FakeOutcome>(host, device);
}
inline tasks::OutcomePointer failure() { return std::make_shared<FakeOutcome>(0, 0, true); }

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
