// Jobs, places and groups under real threads. The rule by which jobs take places is tested in job_queue_test.

#include "runtime/tasks/worker_pool.hpp"

#include <pthread.h>

#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "pool_fixture.hpp"

using namespace shared_tensor;
using namespace shared_tensor::tasks;
using namespace shared_tensor::test;
using namespace std::chrono_literals;
using Submitted = WorkerPool::Submitted;

namespace {

/// Counts how many are inside, and whether there were ever more than allowed.
struct Bound {
    std::size_t limit;
    std::shared_ptr<Group> group = make_group(limit);
    std::atomic<std::size_t> inside{0};
    std::atomic<bool> broken{false};

    explicit Bound(std::size_t bound) : limit(bound) {}
    void enter() {
        if (inside.fetch_add(1) + 1 > limit) broken = true;
    }
    void leave() { inside.fetch_sub(1); }
};

}  // namespace

TEST_CASE("a job runs on a thread of the pool, which has a name for debuggers and top", "[tasks][pool]") {
    CHECK_THROWS_AS(WorkerPool({.workers = 0}), std::logic_error);
    WorkerPool pool({.workers = 1});
    Event done;
    char name[16] = {};
    REQUIRE(pool.submit(make_job([&] {
        ::pthread_getname_np(::pthread_self(), name, sizeof name);
        done.set();
    })) == Submitted::accepted);
    REQUIRE(done.wait());
    CHECK(std::string(name) == "st-worker-1");
}

TEST_CASE("a job that runs on its caller's thread takes the place of a worker", "[tasks][pool]") {
    HeldJob here, next, last;
    WorkerPool pool({.workers = 1});
    bool ran = false;
    std::thread caller([&] { ran = pool.run_here(here.job); });
    REQUIRE(here.runs.wait());
    CHECK(pool.stats().busy == 1);
    CHECK_FALSE(pool.run_here(last.job));
    CHECK(pool.submit(next.job) == Submitted::accepted);
    CHECK(pool.stats().queued == 1);
    CHECK_FALSE(pool.drain(real_clock().now() + 10ms));
    here.go.set();
    caller.join();
    CHECK(ran);
    CHECK(next.runs.wait());  // on the worker
    next.go.set();
    CHECK(pool.drain(real_clock().now() + 10s));
    CHECK_FALSE(pool.run_here(last.job));
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

TEST_CASE("an owner without waiting jobs has a place in a full queue", "[tasks][pool]") {
    HeldJob running;
    WorkerPool pool({.workers = 1, .queue_limit = 1});
    pool.submit(running.job);
    const auto submit = [&](const char* owner) {
        const auto job = make_job([] {});
        job->owner = owner;
        return pool.submit(job);
    };
    CHECK(submit("bob") == Submitted::accepted);
    CHECK(submit("bob") == Submitted::full);
    CHECK(submit("ann") == Submitted::accepted);
    CHECK(submit("ann") == Submitted::full);
    running.go.set();
}

TEST_CASE("what a job owns is gone when the pool is drained; what it throws costs a line in the log", "[tasks][pool]") {
    const Quiet quiet;
    WorkerPool pool({.workers = 1});
    auto owned = std::make_shared<int>(1);
    const std::weak_ptr<int> watched = owned;
    const auto job = make_job([owned = std::move(owned)] { throw std::runtime_error("broken"); });
    pool.submit(job);
    pool.submit(make_job([] { throw 7; }));
    REQUIRE(pool.drain(patience()));
    CHECK(watched.expired());
    CHECK(pool.stats().finished == 2);
}

TEST_CASE("a group that is given twice is held once", "[tasks][pool][place]") {
    WorkerPool pool({.workers = 4});
    const auto group = make_group(1);
    const auto held = pool.try_hold({group, {group, Claim::kAll}});
    REQUIRE(held);
    CHECK_FALSE(pool.try_hold({group}));
    CHECK(group->taken == 1);
}

TEST_CASE("places in a group are held up to its limit, and given back once, moved or not", "[tasks][pool][place]") {
    WorkerPool pool({.workers = 4});
    const auto group = make_group(2);
    const auto first = pool.try_hold({group});
    Event ran;
    {
        auto second = pool.try_hold({group});
        REQUIRE(second);
        CHECK_FALSE(pool.try_hold({group}));
        const auto moved = std::move(*second);
        pool.submit(make_job([&] { ran.set(); }, {group}));
        CHECK(pool.stats().queued == 1);
        CHECK(ran.count() == 0);
    }
    CHECK(ran.wait());
    while (pool.stats().busy > 0)
        std::this_thread::yield();
    const auto again = pool.try_hold({group});
    CHECK(again);
    CHECK_FALSE(pool.try_hold({group}));
}

TEST_CASE("retry_after grows with the queue, the mean run time and what runs already, and is bounded",
          "[tasks][pool]") {
    ManualClock clock;
    HeldJob slow, running;
    WorkerPool pool({.workers = 1}, clock);
    CHECK(pool.retry_after() == 1ms);
    pool.submit(slow.job);
    REQUIRE(slow.runs.wait());
    clock.advance(100ms);
    CHECK(pool.retry_after() == 100ms);
    slow.go.set();
    while (pool.stats().finished == 0)
        std::this_thread::yield();
    CHECK(pool.retry_after() == 100ms);
    pool.submit(running.job);
    for (int i = 0; i < 4; ++i)
        pool.submit(make_job([] {}));
    CHECK(pool.retry_after() == 500ms);
    clock.advance(1h);
    CHECK(pool.retry_after() == 30s);
    running.go.set();
}

TEST_CASE("random jobs, places and withdrawals from many threads: every accepted job runs once, no bound is broken",
          "[tasks][pool][groups]") {
    constexpr int kThreads = 6, kEach = 1500;
    Bound bounds[] = {Bound(1), Bound(2), Bound(3)};
    std::atomic<int> accepted{0}, ran{0}, withdrawn{0};
    WorkerPool pool({.workers = 4, .queue_limit = 200});
    const auto choose = [&](std::mt19937& random, std::vector<Bound*>& chosen) {
        Groups groups;
        for (Bound& bound : bounds) {
            if (random() % 2 == 0) continue;
            chosen.push_back(&bound);
            groups.push_back(bound.group);
        }
        return groups;
    };
    const auto visit = [](const std::vector<Bound*>& chosen) {
        for (Bound* bound : chosen)
            bound->enter();
        std::this_thread::yield();
        for (Bound* bound : chosen)
            bound->leave();
    };
    {
        std::vector<std::jthread> threads;
        for (unsigned seed = 0; seed < kThreads; ++seed) {
            threads.emplace_back([&, seed] {
                std::mt19937 random(seed);
                for (int i = 0; i < kEach; ++i) {
                    std::vector<Bound*> chosen;
                    const auto groups = choose(random, chosen);
                    if (random() % 3 == 0) {
                        if (const auto place = pool.try_hold(groups)) visit(chosen);
                        continue;
                    }
                    const auto job = make_job(
                        [&, chosen] {
                            visit(chosen);
                            ++ran;
                        },
                        groups);
                    if (pool.submit(job) != Submitted::accepted) {
                        std::this_thread::yield();
                        continue;
                    }
                    ++accepted;
                    if (random() % 5 == 0 && pool.withdraw(job)) ++withdrawn;
                }
            });
        }
    }
    REQUIRE(pool.drain(patience()));  // a lost wake-up would leave jobs behind
    CHECK(ran + withdrawn == accepted);
    for (const Bound& bound : bounds)
        CHECK_FALSE(bound.broken);
    const PoolStats stats = pool.stats();
    CHECK(stats.finished == static_cast<std::uint64_t>(ran));
    CHECK(stats.busy == 0);
    CHECK(stats.queued == 0);
}

TEST_CASE("a pool that drains gives up at its deadline, and takes neither jobs nor places", "[tasks][pool][shutdown]") {
    HeldJob running;
    WorkerPool pool({.workers = 1});
    pool.submit(running.job);
    CHECK_FALSE(pool.drain(real_clock().now()));
    CHECK(pool.submit(make_job([] {})) == Submitted::stopping);
    CHECK_FALSE(pool.try_hold({}));
    running.go.set();
    CHECK(pool.drain(patience()));
}

TEST_CASE("a job withdrawn while the pool drains does not run, and is not waited for", "[tasks][pool][shutdown]") {
    const auto group = make_group(1);
    Event ran;
    WorkerPool pool({.workers = 2});
    auto place = pool.try_hold({group});
    const auto blocked = make_job([&] { ran.set(); }, {group});
    pool.submit(blocked);
    REQUIRE_FALSE(pool.drain(real_clock().now()));
    std::pair<bool, bool> withdrawn;
    std::jthread other([&] {
        withdrawn = {pool.withdraw(blocked), pool.withdraw(blocked)};
        place.reset();
    });
    CHECK(pool.drain(patience()));
    other.join();
    CHECK(withdrawn == std::pair(true, false));
    CHECK(ran.count() == 0);
}

TEST_CASE("a pool that is destroyed drops waiting jobs, ready and blocked, and waits for the running one",
          "[tasks][pool][shutdown]") {
    const auto one = make_group(1), two = make_group(1);
    std::atomic<int> ran{0};
    std::vector<std::weak_ptr<Job>> waiting;
    Event started, go, done;
    {
        WorkerPool pool({.workers = 1, .queue_limit = 3});
        const auto holds_on = [&] {  // until the destructor has begun; its end makes room for the others
            started.set();
            go.wait();
            while (pool.submit(make_job([&] { ++ran; })) != Submitted::stopping)
                std::this_thread::yield();
            done.set();
        };
        pool.submit(make_job(holds_on, {one}));
        REQUIRE(started.wait());
        for (const Groups& groups : {Groups{}, Groups{one}, Groups{one, two}}) {
            const auto job = make_job([&] { ++ran; }, groups);
            REQUIRE(pool.submit(job) == Submitted::accepted);
            waiting.push_back(job);
        }
        go.set();
    }
    CHECK(done.count() == 1);
    CHECK(ran == 0);
    for (const auto& job : waiting)
        CHECK(job.expired());
}
