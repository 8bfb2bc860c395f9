#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <thread>
#include <vector>

#include "support/event.hpp"
#include "table_fixture.hpp"

using namespace shared_tensor;
using namespace shared_tensor::tasks;
using namespace shared_tensor::test;
using namespace std::chrono_literals;

TEST_CASE("waiting for a task that has ended returns at once", "[tasks][wait]") {
    TaskTable table;
    const auto id = finished(table);
    CHECK(table.wait(id, std::nullopt, SteadyTime::max())->state == TaskState::completed);
}

TEST_CASE("all who wait for a task wake when it ends, and see its outcome", "[tasks][wait]") {
    TaskTable table;
    const auto id = table.create(task_of()).value();
    const auto result = outcome();
    std::atomic<int> saw{0};
    {
        std::vector<std::jthread> waiters;
        for (int i = 0; i < 8; ++i) {
            waiters.emplace_back([&] {
                const auto info = table.wait(id, "uid:1", patience());
                if (info && info->state == TaskState::completed && info->outcome == result) ++saw;
            });
        }
        table.started(id);
        table.finish(id, result);
    }
    CHECK(saw == 8);
}

TEST_CASE("cancel and close wake those who wait", "[tasks][wait]") {
    for (const bool closes : {false, true}) {
        TaskTable table;
        const auto id = table.create(task_of()).value();
        std::jthread other([&] { closes ? table.close() : static_cast<void>(table.cancel(id, std::nullopt)); });
        CHECK(table.wait(id, std::nullopt, patience())->state == TaskState::cancelled);
    }
}

TEST_CASE("at the deadline the task is shown as it is", "[tasks][wait]") {
    TaskTable table;
    const auto id = table.create(task_of()).value();
    table.started(id);
    CHECK(table.wait(id, std::nullopt, real_clock().now() + 1ms)->state == TaskState::running);
    CHECK(table.wait(id, std::nullopt, SteadyTime::min())->state == TaskState::running);
}

TEST_CASE("a waiter that is told to give up does, long before its deadline", "[tasks][wait]") {
    TaskTable table;
    const auto id = table.create(task_of()).value();
    int asked = 0;
    const auto info = table.wait(id, std::nullopt, SteadyTime::max(), [&] { return ++asked == 2; });
    CHECK(info->state == TaskState::pending);
    CHECK(asked == 2);
}

TEST_CASE("a waiter that never gives up sees the end", "[tasks][wait]") {
    TaskTable table;
    const auto id = table.create(task_of()).value();
    Event asked;
    std::jthread other([&] {
        asked.wait();
        table.finish(id, outcome());
    });
    const auto info = table.wait(id, std::nullopt, patience(), [&] {
        asked.set();
        return false;
    });
    CHECK(info->state == TaskState::completed);
}

TEST_CASE("who waits sees the end of a task that is not kept", "[tasks][wait]") {
    TaskTable table;
    const auto id = table.create({"work", "uid:1", 0ms, {}}).value();
    const auto result = outcome();
    Event waits;
    std::jthread other([&] {
        waits.wait();
        table.finish(id, result);
    });
    const auto info = table.wait(id, std::nullopt, patience(), [&] {
        waits.set();  // asked after the first half second: the waiter is registered by then
        return false;
    });
    REQUIRE(info);
    CHECK(info->outcome == result);
    CHECK_FALSE(table.get(id, std::nullopt));
}

TEST_CASE("waiters of one task sleep on while others end", "[tasks][wait]") {
    TaskTable table;
    const auto awaited = table.create(task_of()).value();
    std::atomic<int> woken{0};
    {
        std::vector<std::jthread> waiters;
        for (int i = 0; i < 100; ++i) {
            waiters.emplace_back([&] {
                table.wait(awaited, std::nullopt, patience());
                ++woken;
            });
        }
        for (int i = 0; i < 1000; ++i)
            finished(table);
        CHECK(woken == 0);
        table.finish(awaited, outcome());
    }
    CHECK(woken == 100);
}
