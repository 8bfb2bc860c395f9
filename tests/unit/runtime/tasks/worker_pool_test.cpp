#include "runtime/tasks/worker_pool.hpp"

#include <pthread.h>

#include <catch2/catch_test_macros.hpp>
#include <stdexcept>
#include <string>
#include <thread>

#include "base/log/log.hpp"
#include "pool_fixture.hpp"
#include "support/manual_clock.hpp"

using namespace shared_tensor;
using namespace shared_tensor::tasks;
using namespace shared_tensor::test;
using namespace std::chrono_literals;
using Submitted = WorkerPool::Submitted;

TEST_CASE("a submitted job runs on a thread of the pool", "[tasks][pool]") {
    WorkerPool pool({.workers = 1});
    Event done;
    std::thread::id where;
    REQUIRE(pool.submit(make_job([&] {
        where = std::this_thread::get_id();
        done.set();
    })) == Submitted::accepted);
    REQUIRE(done.wait());
    CHECK(where != std::this_thread::get_id());
}

TEST_CASE("workers have names for debuggers and top", "[tasks][pool]") {
    WorkerPool pool({.workers = 1});
    Event done;
    char name[16] = {};
    pool.submit(make_job([&] {
        ::pthread_getname_np(::pthread_self(), name, sizeof name);
        done.set();
    }));
    REQUIRE(done.wait());
    CHECK(std::string(name) == "st-worker-1");
}

TEST_CASE("as many jobs run at once as there are workers, and the next waits", "[tasks][pool]") {
    HeldJob a, b, c;
    WorkerPool pool({.workers = 2});
    for (auto* held : {&a, &b, &c})
        pool.submit(held->job);
    REQUIRE(a.runs.wait());
    REQUIRE(b.runs.wait());
    CHECK(pool.stats().busy == 2);
    CHECK(pool.stats().queued == 1);
    CHECK(c.runs.count() == 0);
    a.go.set();
    CHECK(c.runs.wait());
    b.go.set();
    c.go.set();
}

TEST_CASE("tasks leave places in the queue to calls: an eighth, and one if there are two", "[tasks][pool]") {
    CHECK(WorkerLimits{.queue_limit = 1024}.kept_for_calls() == 128);
    CHECK(WorkerLimits{.queue_limit = 2}.kept_for_calls() == 1);
    CHECK(WorkerLimits{.queue_limit = 1}.kept_for_calls() == 0);

    HeldJob running, task, late_task, call, late_call;
    task.job->is_task = late_task.job->is_task = true;
    WorkerPool pool({.workers = 1, .queue_limit = 2});
    REQUIRE(pool.submit(running.job) == Submitted::accepted);
    CHECK(pool.submit(task.job) == Submitted::accepted);
    CHECK(pool.submit(late_task.job) == Submitted::full);
    CHECK(pool.submit(call.job) == Submitted::accepted);
    CHECK(pool.submit(late_call.job) == Submitted::full);
    for (auto* held : {&running, &task, &call})
        held->go.set();
    REQUIRE(call.done.wait());
    late_task.go.set();
    CHECK(pool.submit(late_task.job) == Submitted::accepted);
    CHECK(late_task.done.wait());
}

TEST_CASE("a full queue rejects at once and counts it", "[tasks][pool]") {
    HeldJob running;
    WorkerPool pool({.workers = 1, .queue_limit = 2});
    pool.submit(running.job);
    REQUIRE(pool.submit(make_job([] {})) == Submitted::accepted);
    REQUIRE(pool.submit(make_job([] {})) == Submitted::accepted);
    CHECK(pool.submit(make_job([] {})) == Submitted::full);
    CHECK(pool.stats().rejected == 1);
    running.go.set();
}

TEST_CASE("a queue full of blocked jobs rejects no job that can run at once", "[tasks][pool]") {
    const auto group = make_group(1);
    HeldJob running({group});
    WorkerPool pool({.workers = 2, .queue_limit = 1});
    pool.submit(running.job);
    REQUIRE(pool.submit(make_job([] {}, {group})) == Submitted::accepted);
    REQUIRE(pool.submit(make_job([] {}, {group})) == Submitted::full);
    CHECK(pool.submit(make_job([] {})) == Submitted::accepted);
    running.go.set();
}

TEST_CASE("a withdrawn job does not run", "[tasks][pool]") {
    HeldJob running;
    Event ran;
    {
        WorkerPool pool({.workers = 1});
        pool.submit(running.job);
        const auto waiting = make_job([&] { ran.set(); });
        pool.submit(waiting);
        CHECK(pool.withdraw(waiting));
        CHECK_FALSE(pool.withdraw(waiting));
        running.go.set();
        CHECK(pool.drain(patience()));
    }
    CHECK(ran.count() == 0);
}

TEST_CASE("what a job owns is gone when the pool is drained, whoever still holds the job", "[tasks][pool]") {
    WorkerPool pool({.workers = 1});
    auto owned = std::make_shared<int>(1);
    const std::weak_ptr<int> watched = owned;
    const auto job = make_job([owned = std::move(owned)] {});
    pool.submit(job);
    REQUIRE(pool.drain(patience()));
    CHECK(watched.expired());
}

TEST_CASE("a job that throws costs nothing but a line in the log", "[tasks][pool]") {
    WorkerPool pool({.workers = 1});
    log::set_level(log::Level::off);
    pool.submit(make_job([] { throw std::runtime_error("broken"); }));
    pool.submit(make_job([] { throw 7; }));
    Event ran;
    pool.submit(make_job([&] { ran.set(); }));
    CHECK(ran.wait());
    log::set_level(log::Level::info);
}

TEST_CASE("places in a group are held up to its limit, and given back once, moved or not", "[tasks][pool][place]") {
    WorkerPool pool({.workers = 1});
    const auto group = make_group(2);
    const auto first = pool.try_hold({group});
    {
        auto second = pool.try_hold({group});
        REQUIRE(second);
        CHECK_FALSE(pool.try_hold({group}));
        const auto moved = std::move(*second);
    }
    const auto again = pool.try_hold({group});
    CHECK(again);
    CHECK_FALSE(pool.try_hold({group}));
    CHECK(pool.stats().busy == 0);
}

TEST_CASE("a job of a group whose place is taken runs when the place is given back", "[tasks][pool][place]") {
    WorkerPool pool({.workers = 4});
    const auto group = make_group(1);
    Event ran;
    {
        const auto place = pool.try_hold({group});
        REQUIRE(place);
        pool.submit(make_job([&] { ran.set(); }, {group}));
        CHECK(pool.stats().queued == 1);
        CHECK(ran.count() == 0);
    }
    CHECK(ran.wait());
}

TEST_CASE("retry_after grows with the queue and the mean run time", "[tasks][pool]") {
    ManualClock clock;
    HeldJob slow, running;
    WorkerPool pool({.workers = 1}, clock);
    CHECK(pool.retry_after() == 1ms);
    pool.submit(slow.job);
    REQUIRE(slow.runs.wait());
    clock.advance(100ms);
    slow.go.set();
    while (pool.stats().finished == 0)
        std::this_thread::yield();
    CHECK(pool.retry_after() == 100ms);
    pool.submit(running.job);
    for (int i = 0; i < 4; ++i)
        pool.submit(make_job([] {}));
    CHECK(pool.retry_after() == 500ms);
    running.go.set();
}

TEST_CASE("retry_after counts what runs already, and is bounded", "[tasks][pool]") {
    ManualClock clock;
    HeldJob running;
    WorkerPool pool({.workers = 1}, clock);
    pool.submit(running.job);
    clock.advance(2s);
    CHECK(pool.retry_after() == 2s);
    clock.advance(1h);
    CHECK(pool.retry_after() == 30s);
    running.go.set();
}

TEST_CASE("a pool needs a worker", "[tasks][pool]") { CHECK_THROWS_AS(WorkerPool({.workers = 0}), std::logic_error); }
