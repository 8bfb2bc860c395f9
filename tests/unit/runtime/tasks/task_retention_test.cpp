#include <catch2/catch_test_macros.hpp>

#include "task_fixture.hpp"

using namespace shared_tensor;
using namespace shared_tensor::tasks;
using namespace shared_tensor::test;
using namespace std::chrono_literals;

TEST_CASE("an ended task is gone when its ttl is over, before maintenance came by, and only then",
          "[tasks][retention]") {
    Tasks tasks;
    auto result = outcome(100);
    const std::weak_ptr<const runtime::CallOutcome> watched = result;
    const auto brief = tasks.make_for(1s), cancelled = tasks.make_for(1s), lasting = tasks.make_for(2s);
    const auto waiting = tasks.make_for(1s), running = tasks.make_for(1s);
    tasks.table.started(running);
    tasks.table.finish(brief, std::move(result));
    tasks.table.cancel(cancelled, std::nullopt);
    tasks.table.finish(lasting, outcome(1));
    tasks.clock.advance(999ms);
    CHECK(tasks.knows(brief));
    tasks.clock.advance(1ms);
    for (const auto& id : {brief, cancelled}) {
        CHECK_FALSE(tasks.knows(id));
        CHECK_FALSE(tasks.table.cancel(id, std::nullopt));
    }
    CHECK(tasks.list() == Ids{running, waiting, lasting});
    tasks.table.expire();
    CHECK(watched.expired());
    CHECK(tasks.table.stats().finished == 1);
    CHECK(tasks.table.stats().host_bytes == 1);
    CHECK(tasks.table.stats().evicted == 0);
    tasks.clock.advance(24h);
    tasks.table.expire();
    CHECK(tasks.knows(waiting));
    tasks.table.finish(running, outcome());
    CHECK(tasks.knows(running));  // its time counts from its end
}

TEST_CASE("a ttl is an hour unless asked for, at most a day, and never negative", "[tasks][retention]") {
    Tasks tasks;
    CHECK(tasks.info(tasks.make()).ttl == 1h);
    CHECK(tasks.info(tasks.make_for(std::chrono::milliseconds::max())).ttl == 24h);
    CHECK(tasks.info(tasks.make_for(-1s)).ttl == 0s);
}

TEST_CASE("a clock that is set back or forward for people changes no expiry", "[tasks][retention]") {
    class SetBack final : public Clock {
    public:
        SteadyTime now() const override { return SteadyTime(1h); }
        SystemTime wall_time() const override { return SystemTime(std::chrono::seconds(steps++ * -1'000'000)); }
        mutable int steps = 0;
    } clock;
    TaskTable table({}, clock);
    const auto id = table.create({"work", "uid:1", std::nullopt, {}}).value();
    table.finish(id, outcome());
    table.expire();
    CHECK(table.get(id, std::nullopt));
}

TEST_CASE("with too many tasks the longest finished ones go first, and a new one is rejected when none is finished",
          "[tasks][retention]") {
    Tasks tasks({.max_tasks = 3});
    const auto created_first = tasks.make();
    const auto a = tasks.finished(), b = tasks.finished();
    tasks.table.finish(created_first, outcome());
    const auto c = tasks.make(), d = tasks.make();
    CHECK_FALSE(tasks.knows(a));
    CHECK_FALSE(tasks.knows(b));
    CHECK(tasks.knows(created_first));
    CHECK(tasks.table.stats().evicted == 2);
    const auto e = tasks.make();
    CHECK(tasks.rejects_new());
    CHECK(tasks.list() == Ids{e, d, c});
    tasks.table.finish(c, outcome());
    tasks.make();
    CHECK_FALSE(tasks.knows(c));
}

TEST_CASE("tasks of an owner with more than half of the tasks or bytes go before those of others",
          "[tasks][retention]") {
    Tasks tasks({.max_tasks = 4, .max_bytes = 100});
    const auto bens = tasks.finished(outcome(30), "uid:2");
    tasks.finished();
    const auto second = tasks.finished(), third = tasks.finished(), fourth = tasks.finished();
    CHECK(tasks.list() == Ids{fourth, third, second, bens});
    const auto two = tasks.make("uid:2");  // 2 of 4 are not more than half
    CHECK(tasks.list() == Ids{two, fourth, third, bens});
    tasks.finished(outcome(60), "uid:3");
    const auto next = tasks.finished(outcome(50), "uid:3");  // the fifth task, and more than 100 bytes
    CHECK(tasks.list() == Ids{next, two, fourth});
}

TEST_CASE("an owner of many small tasks loses none for the bytes of others", "[tasks][retention]") {
    Tasks tasks({.max_tasks = 10, .max_bytes = 100});
    const auto big = tasks.finished(outcome(60), "uid:2");
    for (int i = 0; i < 6; ++i)
        tasks.finished(outcome(0));
    tasks.finished(outcome(50), "uid:3");
    CHECK_FALSE(tasks.knows(big));
    CHECK(tasks.list().size() == 7);
}

TEST_CASE("an owner of many bytes on the host loses none for bytes on devices", "[tasks][retention]") {
    Tasks tasks({.max_bytes = 1000});
    tasks.finished(outcome(0, 400), "uid:2");
    const auto second = tasks.finished(outcome(0, 400), "uid:3");
    const auto a = tasks.finished(outcome(450)), b = tasks.finished(outcome(450));
    const auto third = tasks.finished(outcome(0, 300), "uid:4");
    CHECK(tasks.list() == Ids{third, b, a, second});
}

TEST_CASE("with too many bytes of outcomes, on host or device, the longest finished ones go first",
          "[tasks][retention]") {
    Tasks tasks({.max_bytes = 100});
    const auto a = tasks.finished(outcome(1, 60)), b = tasks.finished(outcome(60));
    CHECK(tasks.knows(a));  // 61 bytes of the host, 60 of the device
    const auto c = tasks.finished(outcome(1, 60));
    CHECK(tasks.list() == Ids{c, b});
    CHECK(tasks.table.stats().device_bytes == 60);
    const auto d = tasks.finished(outcome(40));
    CHECK(tasks.list() == Ids{d, c});
    CHECK(tasks.table.stats().host_bytes == 41);
    const auto big = tasks.finished(outcome(1000));
    CHECK(tasks.list() == Ids{big});  // the newest is kept, until the next one comes
    const auto cancelled = tasks.make();
    tasks.table.cancel(cancelled, std::nullopt);
    CHECK(tasks.list() == Ids{cancelled, big});
    const auto last = tasks.finished(outcome(1));
    CHECK(tasks.list() == Ids{last, cancelled});
}

TEST_CASE("an outcome that is freed may use the table", "[tasks][retention]") {
    Tasks tasks({.max_tasks = 1});
    const auto curious = [&] {  // its end would never return if the table's lock were held
        const std::shared_ptr<void> asks(&tasks.table, [](TaskTable* all) { all->stats(); });
        return outcome(1, 0, {nullptr, {}, {std::make_shared<const ObjectCell>(ObjectCell{"t", {}, asks, "i"})}});
    };
    tasks.finished(curious());
    tasks.finished(curious());  // evicts the first
    tasks.clock.advance(2h);
    tasks.table.expire();
    CHECK(tasks.table.stats().finished == 0);
}
