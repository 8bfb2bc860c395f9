// Groups under real threads: bounds, order and no lost wake-up. The rule itself is tested in job_queue_test.

#include <algorithm>
#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <random>
#include <thread>
#include <vector>

#include "base/concurrency/guarded.hpp"
#include "pool_fixture.hpp"
#include "runtime/tasks/worker_pool.hpp"

using namespace shared_tensor;
using namespace shared_tensor::tasks;
using namespace shared_tensor::test;

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

TEST_CASE("jobs of a serialised group run in the order of their submission", "[tasks][pool][groups]") {
    const auto serial = make_group(1);
    Guarded<std::vector<int>> order;
    WorkerPool pool({.workers = 4});
    for (int i = 0; i < 1000; ++i) {
        pool.submit(make_job([&, i] { order.with([&](std::vector<int>& seen) { seen.push_back(i); }); }, {serial}));
    }
    REQUIRE(pool.drain(patience()));
    const auto seen = order.with([](const std::vector<int>& all) { return all; });
    CHECK(seen.size() == 1000);
    CHECK(std::is_sorted(seen.begin(), seen.end()));
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
                    if (pool.submit(job) != WorkerPool::Submitted::accepted) {
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
