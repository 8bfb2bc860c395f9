#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <optional>
#include <thread>

#include "pool_fixture.hpp"
#include "runtime/tasks/worker_pool.hpp"

using namespace shared_tensor;
using namespace shared_tensor::tasks;
using namespace shared_tensor::test;
using Submitted = WorkerPool::Submitted;

TEST_CASE("drain waits for running and waiting jobs, blocked ones included", "[tasks][pool][shutdown]") {
    const auto serial = make_group(1);
    std::atomic<int> ran{0};
    WorkerPool pool({.workers = 2});
    for (int i = 0; i < 50; ++i)
        pool.submit(make_job([&] { ++ran; }, {serial}));
    CHECK(pool.drain(patience()));
    CHECK(ran == 50);
}

TEST_CASE("drain gives up at its deadline", "[tasks][pool][shutdown]") {
    HeldJob running;
    WorkerPool pool({.workers = 1});
    pool.submit(running.job);
    CHECK_FALSE(pool.drain(real_clock().now()));
    running.go.set();
    CHECK(pool.drain(patience()));
}

TEST_CASE("a pool that drains takes neither jobs nor places", "[tasks][pool][shutdown]") {
    WorkerPool pool({.workers = 1});
    REQUIRE(pool.drain(patience()));
    CHECK(pool.submit(make_job([] {})) == Submitted::stopping);
    CHECK_FALSE(pool.try_hold({}));
}

TEST_CASE("a job withdrawn while the pool drains is not waited for", "[tasks][pool][shutdown]") {
    const auto group = make_group(1);
    WorkerPool pool({.workers = 2});
    auto place = pool.try_hold({group});
    const auto blocked = make_job([] {}, {group});
    pool.submit(blocked);
    REQUIRE_FALSE(pool.drain(real_clock().now()));
    std::jthread other([&] {
        pool.withdraw(blocked);
        place.reset();
    });
    CHECK(pool.drain(patience()));
}

TEST_CASE("a pool that is destroyed drops waiting jobs, ready and blocked, and waits for the running one",
          "[tasks][pool][shutdown]") {
    std::atomic<int> ran{0};
    std::weak_ptr<Job> ready, blocked, doubly_blocked;
    HeldJob running;
    {
        std::optional<WorkerPool> pool(std::in_place, WorkerLimits{.workers = 1});
        const auto one = make_group(1), two = make_group(1);
        pool->submit(running.job);
        const auto count = [&] { ++ran; };
        const auto add = [&](Groups groups) {
            auto job = make_job(count, std::move(groups));
            pool->submit(job);
            return std::weak_ptr<Job>(job);
        };
        ready = add({one});
        blocked = add({one, two});
        doubly_blocked = add({one, two});
        REQUIRE(running.runs.wait());
        running.go.set();
        // The running job may end before the destructor begins: then some of the waiting ones run. None is leaked.
        pool.reset();
    }
    CHECK(running.done.count() == 1);
    CHECK(ready.expired());
    CHECK(blocked.expired());
    CHECK(doubly_blocked.expired());
}

TEST_CASE("jobs that wait when the destructor begins never run, even if one that runs makes room for them",
          "[tasks][pool][shutdown]") {
    const auto serial = make_group(1);
    std::atomic<int> ran{0};
    std::weak_ptr<Job> watched;
    {
        WorkerPool pool({.workers = 1, .queue_limit = 1});
        pool.submit(make_job(
            [&] {
                while (pool.submit(make_job([&] { ++ran; }, {serial})) != Submitted::stopping)
                    std::this_thread::yield();
            },
            {serial}));
        const auto waiting = make_job([&] { ++ran; }, {serial});
        pool.submit(waiting);
        watched = waiting;
    }
    CHECK(ran == 0);
    CHECK(watched.expired());
}
