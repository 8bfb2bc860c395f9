// Ends of tasks that are written for the next process.

#include <catch2/catch_test_macros.hpp>
#include <future>
#include <string>
#include <vector>

#include "support/event.hpp"
#include "task_fixture.hpp"

using namespace shared_tensor;
using namespace shared_tensor::tasks;
using namespace shared_tensor::test;
using namespace std::chrono_literals;

namespace {

/// Notes what is written. It may be held up while it writes.
struct Written final : TaskRecords {
    void task_ended(const TaskInfo& task) noexcept override {
        ended.push_back(task);
        begun.set();
        if (is_slow) go_on.wait();
    }
    void task_gone(const std::string& id) noexcept override { gone.push_back(id); }

    std::vector<TaskInfo> ended;
    Ids gone;
    bool is_slow = false;
    Event begun, go_on;
};

struct Recorded {
    explicit Recorded(TaskLimits limits = {}) : table(limits, clock, &written) {}
    std::string make(std::chrono::milliseconds ttl = 1h) { return table.create({"work", "uid:1", ttl, {}}).value(); }
    TaskState state(const std::string& id) const { return table.get(id, std::nullopt).value().state; }

    ManualClock clock;
    Written written;
    TaskTable table;
};

}  // namespace

TEST_CASE("each end of a task is written once, as it is", "[tasks]") {
    Recorded tasks;
    const auto done = tasks.make(), failed = tasks.make(), cancelled = tasks.make(), open = tasks.make();
    const auto result = outcome(3);
    tasks.table.finish(done, result);
    tasks.table.finish(done, failure());
    tasks.table.finish(failed, failure());
    tasks.table.cancel(cancelled, std::nullopt);
    tasks.table.finish(cancelled, result);
    tasks.table.close();
    REQUIRE(tasks.written.ended.size() == 4);
    const auto& written = tasks.written.ended;
    CHECK(written[0].id == done);
    CHECK(written[0].state == TaskState::completed);
    CHECK(written[0].outcome == result);
    CHECK(written[1].state == TaskState::failed);
    CHECK(written[2].state == TaskState::cancelled);
    CHECK(written[3].id == open);
    CHECK(written[3].state == TaskState::cancelled);
    CHECK(tasks.written.gone.empty());
}

TEST_CASE("nobody sees the end of a task before it is written, and a cancel that comes late waits for it", "[tasks]") {
    Recorded tasks;
    tasks.written.is_slow = true;
    const auto id = tasks.make();
    auto finished = std::async(std::launch::async, [&] { tasks.table.finish(id, outcome()); });
    REQUIRE(tasks.written.begun.wait());
    CHECK(tasks.state(id) == TaskState::pending);
    auto cancelled = std::async(std::launch::async, [&] { return tasks.table.cancel(id, std::nullopt); });
    CHECK(cancelled.wait_for(20ms) == std::future_status::timeout);
    tasks.written.go_on.set();
    finished.get();
    CHECK(cancelled.get().value().state == TaskState::completed);
    CHECK(tasks.written.ended.size() == 1);
}

TEST_CASE("a task that is forgotten, evicted or expired is gone from the records", "[tasks]") {
    Recorded tasks({.max_tasks = 2});
    const auto rejected = tasks.make();
    tasks.table.forget(rejected);
    const auto evicted = tasks.make(), expired = tasks.make(1s);
    tasks.table.finish(evicted, outcome());
    tasks.table.finish(expired, outcome());
    const auto next = tasks.make();
    CHECK(tasks.written.gone == Ids{rejected});
    tasks.table.keep_bounds();
    CHECK(tasks.written.gone == Ids{rejected, evicted});
    tasks.clock.advance(1s);
    tasks.table.expire();
    CHECK(tasks.written.gone == Ids{rejected, evicted, expired});
    CHECK(tasks.state(next) == TaskState::pending);
}

TEST_CASE("a restored task is as it was, and lives for the rest of its time", "[tasks]") {
    Recorded before, after;
    const auto id = before.make(10s), old = before.make(2s);
    before.table.progress(id, 0.5, "half");
    before.table.finish(id, outcome(5));
    before.table.finish(old, outcome());
    after.clock.advance(3s);
    for (TaskInfo& task : before.written.ended)
        after.table.restore(task);
    const auto restored = after.table.get(id, "uid:1").value();
    CHECK(restored.state == TaskState::completed);
    CHECK(restored.message == "half");
    CHECK(restored.outcome->bytes().host == 5);
    CHECK(after.table.stats().host_bytes == 5);
    CHECK_FALSE(after.table.get(old, std::nullopt));
    CHECK_FALSE(after.table.get(id, "uid:2"));
    after.table.expire();
    CHECK(after.written.gone == Ids{old});
    after.clock.advance(7s);
    after.table.expire();
    CHECK(after.table.stats().finished == 0);
    CHECK(after.table.stats().host_bytes == 0);
}
