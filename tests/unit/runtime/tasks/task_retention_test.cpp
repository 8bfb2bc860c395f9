#include <catch2/catch_test_macros.hpp>
#include <thread>
#include <vector>

#include "table_fixture.hpp"

using namespace shared_tensor;
using namespace shared_tensor::tasks;
using namespace shared_tensor::test;
using namespace std::chrono_literals;

TEST_CASE("a finished task is gone when its ttl is over, before maintenance came by", "[tasks][retention]") {
    ManualClock clock;
    TaskTable table({}, clock);
    const auto id = table.create({"work", "uid:1", 10s, {}}).value();
    table.finish(id, outcome());
    clock.advance(9999ms);
    CHECK(table.get(id, std::nullopt));
    clock.advance(1ms);
    CHECK_FALSE(table.get(id, std::nullopt));
    CHECK_FALSE(table.cancel(id, std::nullopt));
    CHECK(table.list({}).tasks.empty());
}

TEST_CASE("expire frees what is over, and only that", "[tasks][retention]") {
    ManualClock clock;
    TaskTable table({}, clock);
    auto result = outcome(100);
    const std::weak_ptr<const runtime::CallOutcome> watched = result;
    const auto brief = table.create({"work", "uid:1", 1s, {}}).value();
    table.finish(brief, std::move(result));
    const auto lasting = table.create({"work", "uid:1", 2s, {}}).value();
    table.finish(lasting, outcome(1));
    clock.advance(1s);
    table.expire();
    CHECK(watched.expired());
    CHECK(table.stats().finished == 1);
    CHECK(table.stats().host_bytes == 1);
    CHECK(table.get(lasting, std::nullopt));
}

TEST_CASE("the ttl counts from the end: an unfinished task never expires", "[tasks][retention]") {
    ManualClock clock;
    TaskTable table({}, clock);
    const auto waiting = table.create({"work", "uid:1", 1s, {}}).value();
    const auto running = table.create({"work", "uid:1", 1s, {}}).value();
    table.started(running);
    clock.advance(24h);
    table.expire();
    CHECK(table.get(waiting, std::nullopt));
    table.finish(running, outcome());
    CHECK(table.get(running, std::nullopt));
}

TEST_CASE("cancelled tasks expire too", "[tasks][retention]") {
    ManualClock clock;
    TaskTable table({}, clock);
    const auto id = table.create({"work", "uid:1", 1s, {}}).value();
    table.cancel(id, std::nullopt);
    clock.advance(1s);
    table.expire();
    CHECK(table.stats().finished == 0);
}

TEST_CASE("a ttl is an hour unless asked for, at most a day, and never negative", "[tasks][retention]") {
    TaskTable table;
    const auto ttl = [&](std::optional<std::chrono::milliseconds> wanted) {
        return table.get(table.create({"work", "uid:1", wanted, {}}).value(), std::nullopt)->ttl;
    };
    CHECK(ttl(std::nullopt) == 1h);
    CHECK(ttl(std::chrono::milliseconds::max()) == 24h);
    CHECK(ttl(-1s) == 0s);
}

TEST_CASE("a clock that is set back or forward for people changes no expiry", "[tasks][retention]") {
    class SetBack final : public Clock {
    public:
        SteadyTime now() const override { return SteadyTime(1h); }
        SystemTime wall_time() const override { return SystemTime(std::chrono::seconds(steps++ * -1'000'000)); }
        mutable int steps = 0;
    } clock;
    TaskTable table({}, clock);
    const auto id = finished(table);
    table.expire();
    CHECK(table.get(id, std::nullopt));
}

TEST_CASE("with too many tasks the longest finished ones go first", "[tasks][retention]") {
    TaskTable table({.max_tasks = 3});
    const auto created_first = table.create(task_of()).value();
    const auto a = finished(table), b = finished(table);
    table.finish(created_first, outcome());
    const auto c = table.create(task_of()).value();
    CHECK_FALSE(table.get(a, std::nullopt));
    CHECK(table.get(b, std::nullopt));
    CHECK(table.get(created_first, std::nullopt));
    CHECK(table.get(c, std::nullopt));
    CHECK(table.stats().evicted == 1);
}

TEST_CASE("when all tasks are unfinished a new one is rejected, and none is lost", "[tasks][retention]") {
    TaskTable table({.max_tasks = 2});
    const auto a = table.create(task_of()).value();
    table.create(task_of());
    CHECK_FALSE(table.create(task_of()));
    table.finish(a, outcome());
    CHECK(table.create(task_of()));
    CHECK_FALSE(table.get(a, std::nullopt));
}

TEST_CASE("with too many bytes of outcomes the longest finished ones go first", "[tasks][retention]") {
    TaskTable table({.max_bytes = 100});
    const auto a = finished(table, outcome(40)), b = finished(table, outcome(40));
    CHECK(table.stats().host_bytes == 80);
    const auto c = finished(table, outcome(40));
    CHECK_FALSE(table.get(a, std::nullopt));
    CHECK(table.get(b, std::nullopt));
    CHECK(table.get(c, std::nullopt));
    CHECK(table.stats().host_bytes == 80);
}

TEST_CASE("bytes on the device have a bound of their own", "[tasks][retention]") {
    TaskTable table({.max_bytes = 100});
    const auto a = finished(table, outcome(1, 60)), b = finished(table, outcome(60));
    CHECK(table.get(a, std::nullopt));  // 61 bytes of the host, 60 of the device
    const auto c = finished(table, outcome(1, 60));
    CHECK_FALSE(table.get(a, std::nullopt));
    CHECK(table.get(b, std::nullopt));
    CHECK(table.get(c, std::nullopt));
    CHECK(table.stats().device_bytes == 60);
}

TEST_CASE("the newest outcome is kept even if it alone is over the bound, until the next one comes",
          "[tasks][retention]") {
    TaskTable table({.max_bytes = 100});
    const auto small = finished(table, outcome(1)), big = finished(table, outcome(1000));
    CHECK_FALSE(table.get(small, std::nullopt));
    CHECK(table.get(big, std::nullopt));
    const auto cancelled = table.create(task_of()).value();
    table.cancel(cancelled, std::nullopt);
    CHECK(table.get(big, std::nullopt));
    CHECK(table.get(cancelled, std::nullopt));
    finished(table, outcome(1));
    CHECK_FALSE(table.get(big, std::nullopt));
}

TEST_CASE("an outcome that is freed may use the table", "[tasks][retention]") {
    ManualClock clock;
    TaskTable table({.max_tasks = 1}, clock);
    const auto curious = [&] {  // its end would never return if the table's lock were held
        const std::shared_ptr<void> asks(&table, [](TaskTable* all) { all->stats(); });
        return outcome(1, 0, {nullptr, {}, {std::make_shared<const ObjectCell>(ObjectCell{"t", {}, asks, "i"})}});
    };
    finished(table, curious());
    finished(table, curious());  // evicts the first
    clock.advance(2h);
    table.expire();
    CHECK(table.stats().finished == 0);
}

TEST_CASE("a thousand expired tasks go in one call", "[tasks][retention]") {
    ManualClock clock;
    TaskTable table({}, clock);
    for (int i = 0; i < 1000; ++i)
        finished(table);
    clock.advance(1h);
    table.expire();
    CHECK(table.stats().finished == 0);
    CHECK(table.stats().evicted == 0);
}

TEST_CASE("a hundred thousand finished tasks do not slow the next ones down", "[tasks][retention][slow]") {
    const auto time_of_1000 = [](TaskTable& table) {
        auto best = SteadyTime::duration::max();  // of several: what the machine does besides is not meant
        for (int round = 0; round < 7; ++round) {
            const auto before = real_clock().now();
            for (int i = 0; i < 1000; ++i)
                table.get(finished(table), "uid:1");
            best = std::min(best, real_clock().now() - before);
        }
        return best;
    };
    TaskTable empty({.max_tasks = 200'000}), full({.max_tasks = 200'000});
    for (int i = 0; i < 100'000; ++i)
        finished(full);
    CHECK(time_of_1000(full) < 10 * time_of_1000(empty));  // linear work would be a thousand times slower
}

TEST_CASE("tasks created, run, cancelled, listed and expired from many threads add up", "[tasks][retention]") {
    ManualClock clock;
    TaskTable table({.max_tasks = 50}, clock);
    {
        std::vector<std::jthread> threads;
        for (int t = 0; t < 4; ++t) {
            threads.emplace_back([&, t] {
                for (int i = 0; i < 500; ++i) {
                    const auto id = table.create(task_of("uid:" + std::to_string(t)));
                    if (!id) continue;
                    table.started(*id);
                    table.progress(*id, 0.5, "half");
                    if (i % 3 == 0) table.cancel(*id, std::nullopt);
                    table.finish(*id, outcome(1, 1));
                    table.list({.owner = "uid:0", .state = {}, .cursor = {}, .limit = 10});
                    if (i % 50 == 0) clock.advance(30min);
                    if (i % 10 == 0) table.expire();
                }
            });
        }
    }
    CHECK(table.stats().pending + table.stats().running == 0);
    CHECK(table.stats().finished <= 50);
    clock.advance(24h);
    table.expire();
    CHECK(table.stats().host_bytes == 0);
    CHECK(table.stats().device_bytes == 0);
}
