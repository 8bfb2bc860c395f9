#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <limits>
#include <set>
#include <stdexcept>

#include "table_fixture.hpp"

using namespace shared_tensor;
using namespace shared_tensor::tasks;
using namespace shared_tensor::test;
using namespace std::chrono_literals;

TEST_CASE("a new task is pending and has its method, owner, times and no progress", "[tasks][table]") {
    ManualClock clock;
    TaskTable table({}, clock);
    const auto id = table.create({"train", "uid:7", 5s, {}}).value();
    const auto info = table.get(id, "uid:7").value();
    CHECK(info.id == id);
    CHECK(info.method == "train");
    CHECK(info.owner == "uid:7");
    CHECK(info.state == TaskState::pending);
    CHECK(info.created_at == clock.wall_time());
    CHECK(info.updated_at == info.created_at);
    CHECK(info.ttl == 5s);
    CHECK_FALSE(info.fraction);
    CHECK(info.outcome == nullptr);
}

TEST_CASE("a task's id is \"t-\" and 128 bits in hexadecimal, another one each time", "[tasks][table]") {
    TaskTable table;
    std::set<std::string> ids;
    for (int i = 0; i < 100; ++i) {
        const auto id = table.create(task_of()).value();
        CHECK(id.size() == 34);
        CHECK(id.starts_with("t-"));
        CHECK(id.find_first_not_of("0123456789abcdef", 2) == std::string::npos);
        ids.insert(id);
    }
    CHECK(ids.size() == 100);
}

TEST_CASE("a task runs, and completes with its outcome", "[tasks][table]") {
    TaskTable table;
    const auto id = table.create(task_of()).value();
    table.started(id);
    CHECK(state_of(table, id) == TaskState::running);
    const auto result = outcome();
    table.finish(id, result);
    CHECK(state_of(table, id) == TaskState::completed);
    CHECK(table.get(id, std::nullopt)->outcome == result);
}

TEST_CASE("a task whose outcome failed is failed, and keeps it", "[tasks][table]") {
    TaskTable table;
    const auto id = finished(table, failure());
    CHECK(state_of(table, id) == TaskState::failed);
    CHECK(table.get(id, std::nullopt)->outcome != nullptr);
}

TEST_CASE("a task may end before it was said to run", "[tasks][table]") {
    TaskTable table;
    const auto id = table.create(task_of()).value();
    table.finish(id, outcome());
    CHECK(state_of(table, id) == TaskState::completed);
}

TEST_CASE("a terminal state is final: what comes after it is dropped", "[tasks][table]") {
    TaskTable table;
    const auto id = table.create(task_of()).value();
    table.started(id);
    const auto ending = GENERATE(0, 1, 2);
    if (ending == 0) table.finish(id, outcome(1));
    if (ending == 1) table.finish(id, failure());
    if (ending == 2) table.cancel(id, std::nullopt);
    const auto before = table.get(id, std::nullopt).value();
    table.started(id);
    table.progress(id, 0.5, "late");
    table.finish(id, outcome(2));
    table.finish(id, failure());
    table.cancel(id, std::nullopt);
    const auto after = table.get(id, std::nullopt).value();
    CHECK(after.state == before.state);
    CHECK(after.outcome == before.outcome);
    CHECK(after.message == before.message);
    CHECK_FALSE(after.fraction);
}

TEST_CASE("progress is kept, clamped to 0 to 1, and moves updated_at", "[tasks][table]") {
    ManualClock clock;
    TaskTable table({}, clock);
    const auto id = table.create(task_of()).value();
    table.started(id);
    clock.advance(3s);
    table.progress(id, 0.25, "a quarter");
    auto info = table.get(id, std::nullopt).value();
    CHECK(info.fraction == 0.25);
    CHECK(info.message == "a quarter");
    CHECK(info.updated_at - info.created_at == 3s);
    table.progress(id, 7, "");
    CHECK(table.get(id, std::nullopt)->fraction == 1.0);
    table.progress(id, -1, "");
    CHECK(table.get(id, std::nullopt)->fraction == 0.0);
}

TEST_CASE("progress that is no number leaves the fraction as it was", "[tasks][table]") {
    TaskTable table;
    const auto id = table.create(task_of()).value();
    table.progress(id, 0.5, "");
    table.progress(id, std::numeric_limits<double>::quiet_NaN(), "lost count");
    const auto info = table.get(id, std::nullopt).value();
    CHECK(info.fraction == 0.5);
    CHECK(info.message == "lost count");
}

TEST_CASE("a long progress message is cut after 1 KiB, between two characters", "[tasks][table]") {
    TaskTable table;
    const auto id = table.create(task_of()).value();
    table.progress(id, 0, std::string(1024, 'a'));
    CHECK(table.get(id, std::nullopt)->message.size() == 1024);
    std::string umlauts = "a";  // each two bytes: the limit falls into the middle of one
    for (int i = 0; i < 600; ++i)
        umlauts += "\xc3\xa4";
    table.progress(id, 0, umlauts);
    CHECK(table.get(id, std::nullopt)->message == umlauts.substr(0, 1023));
}

TEST_CASE("cancel ends a task at once, and calls its cancel function once", "[tasks][table][cancel]") {
    TaskTable table;
    int called = 0;
    const auto id = table.create(task_of("uid:1", [&] { ++called; })).value();
    table.started(id);
    CHECK(table.cancel(id, "uid:1")->state == TaskState::cancelled);
    table.cancel(id, "uid:1");
    CHECK(called == 1);
}

TEST_CASE("a cancel function may use the table", "[tasks][table][cancel]") {
    TaskTable table;
    std::string id;
    TaskState seen = TaskState::pending;
    id = table
             .create(task_of("uid:1",
                             [&] {
                                 table.finish(id, outcome());
                                 seen = state_of(table, id);
                             }))
             .value();
    table.cancel(id, std::nullopt);
    CHECK(seen == TaskState::cancelled);
}

TEST_CASE("a task that has ended is not cancelled any more", "[tasks][table][cancel]") {
    TaskTable table;
    int called = 0;
    const auto id = table.create(task_of("uid:1", [&] { ++called; })).value();
    table.finish(id, outcome());
    CHECK(table.cancel(id, std::nullopt)->state == TaskState::completed);
    CHECK(called == 0);
}

TEST_CASE("the cancel function and what it owns are gone when the task has ended", "[tasks][table][cancel]") {
    TaskTable table;
    auto owned = std::make_shared<int>();
    const std::weak_ptr<int> watched = owned;
    const auto id = table.create(task_of("uid:1", [owned = std::move(owned)] {})).value();
    table.finish(id, outcome());
    CHECK(watched.expired());
}

TEST_CASE("somebody else's task looks like none: it cannot be seen, waited for or cancelled", "[tasks][table]") {
    TaskTable table;
    const auto id = table.create(task_of("uid:1")).value();
    CHECK_FALSE(table.get(id, "uid:2"));
    CHECK_FALSE(table.wait(id, "uid:2", SteadyTime::max()));
    CHECK_FALSE(table.cancel(id, "uid:2"));
    CHECK(state_of(table, id) == TaskState::pending);
}

TEST_CASE("an unknown id is nothing to any method", "[tasks][table]") {
    TaskTable table;
    table.started("t-0");
    table.progress("t-0", 1, "");
    table.finish("t-0", outcome());
    CHECK_FALSE(table.get("t-0", std::nullopt));
    CHECK_FALSE(table.wait("t-0", std::nullopt, SteadyTime::max()));
    CHECK_FALSE(table.cancel("t-0", std::nullopt));
}

TEST_CASE("a task cannot end without an outcome", "[tasks][table]") {
    TaskTable table;
    CHECK_THROWS_AS(table.finish(table.create(task_of()).value(), nullptr), std::logic_error);
}

TEST_CASE("states have the protocol's names, both ways", "[tasks][table]") {
    for (const auto state :
         {TaskState::pending, TaskState::running, TaskState::completed, TaskState::failed, TaskState::cancelled}) {
        CHECK(parse_task_state(to_string(state)) == state);
    }
    CHECK(to_string(TaskState::cancelled) == "cancelled");
    CHECK_FALSE(parse_task_state("canceled"));
    CHECK_FALSE(is_terminal(TaskState::running));
    CHECK(is_terminal(TaskState::cancelled));
}

TEST_CASE("stats count tasks by state and the bytes of their outcomes", "[tasks][table]") {
    TaskTable table;
    table.create(task_of());
    table.started(table.create(task_of()).value());
    finished(table, outcome(10, 20));
    finished(table, outcome(1, 2));
    const auto stats = table.stats();
    CHECK(stats.pending == 1);
    CHECK(stats.running == 1);
    CHECK(stats.finished == 2);
    CHECK(stats.host_bytes == 11);
    CHECK(stats.device_bytes == 22);
    CHECK(stats.evicted == 0);
}

TEST_CASE("close cancels all unfinished tasks, keeps the finished ones, and takes no new one", "[tasks][table]") {
    TaskTable table;
    int called = 0;
    const auto waiting = table.create(task_of("uid:1", [&] { ++called; })).value();
    const auto running = table.create(task_of("uid:1", [&] { ++called; })).value();
    table.started(running);
    const auto done = finished(table);
    table.close();
    CHECK(called == 2);
    CHECK(state_of(table, waiting) == TaskState::cancelled);
    CHECK(state_of(table, running) == TaskState::cancelled);
    CHECK(state_of(table, done) == TaskState::completed);
    CHECK_FALSE(table.create(task_of()));
}
