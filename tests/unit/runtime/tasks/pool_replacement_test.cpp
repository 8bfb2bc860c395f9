// A worker that hangs in a function that nobody waits for is replaced; when the function ends after all, it leaves.

#include <catch2/catch_test_macros.hpp>
#include <thread>

#include "pool_fixture.hpp"

using namespace shared_tensor;
using namespace shared_tensor::tasks;
using namespace shared_tensor::test;
using namespace std::chrono_literals;

namespace {

/// A pool of one worker with one hanging job.
struct Hanging {
    Quiet quiet;
    ManualClock clock;
    std::shared_ptr<Group> serial = make_group(1);
    HeldJob hung{{serial}};
    WorkerPool pool;

    explicit Hanging(std::size_t spare = 2) : pool({.workers = 1}, clock, {.most = spare, .after = 5s}) {
        pool.submit(hung.job);
        hung.runs.wait();
    }
    ~Hanging() { hung.go.set(); }
    /// How many workers are replaced when `time` is over.
    std::size_t replaced_after(SteadyTime::duration time) {
        clock.advance(time);
        pool.sweep();
        return pool.stats().replaced;
    }
    void until_finished(std::uint64_t finished) const {
        const auto deadline = patience();
        while (pool.stats().finished < finished && real_clock().now() < deadline)
            std::this_thread::yield();
    }
};

}  // namespace

TEST_CASE("the worker of a job abandoned for long is replaced once, and waiting jobs run, but none of the job's group",
          "[tasks][pool][replacement]") {
    Hanging hanging;
    Event ran, serial_ran;
    hanging.pool.submit(make_job([&] { ran.set(); }));
    CHECK(hanging.replaced_after(1h) == 0);  // somebody waits for it
    hanging.pool.abandon(hanging.hung.job);
    CHECK(hanging.replaced_after(4999ms) == 0);
    CHECK(hanging.replaced_after(1ms) == 1);
    CHECK(ran.wait());
    CHECK(hanging.replaced_after(5s) == 1);
    hanging.pool.submit(make_job([&] { serial_ran.set(); }, {hanging.serial}));
    CHECK_FALSE(hanging.pool.try_hold({hanging.serial}));
    CHECK(hanging.pool.stats().queued == 1);
    hanging.hung.go.set();
    CHECK(serial_ran.wait());
}

TEST_CASE("a job gives back its share of the workers when its worker is replaced, and once only",
          "[tasks][pool][replacement]") {
    Hanging hanging;
    const auto share = make_group(1, true);
    HeldJob hung{{share}}, next{{share}};
    Event ran;
    hanging.pool.abandon(hanging.hung.job);
    CHECK(hanging.replaced_after(5s) == 1);
    hanging.pool.submit(hung.job);
    REQUIRE(hung.runs.wait());
    hanging.pool.submit(next.job);
    hanging.pool.submit(make_job([&] { ran.set(); }, {share}));
    hanging.pool.abandon(hung.job);
    CHECK(hanging.pool.stats().queued == 2);
    CHECK(hanging.replaced_after(5s) == 2);
    REQUIRE(next.runs.wait());
    hung.go.set();
    hanging.until_finished(1);
    CHECK(hanging.pool.stats().queued == 1);  // `next` has the only place
    next.go.set();
    CHECK(ran.wait());
}

TEST_CASE("when the abandoned job ends, its surplus worker leaves", "[tasks][pool][replacement]") {
    Hanging hanging;
    hanging.pool.abandon(hanging.hung.job);
    CHECK(hanging.replaced_after(5s) == 1);
    hanging.hung.go.set();
    hanging.until_finished(1);
    CHECK(hanging.pool.stats().replaced == 0);
    HeldJob one, two;
    hanging.pool.submit(one.job);
    hanging.pool.submit(two.job);
    REQUIRE(one.runs.wait());
    CHECK(hanging.pool.stats().busy == 1);
    CHECK(hanging.pool.stats().queued == 1);
    hanging.pool.sweep();  // joins the thread that left
    one.go.set();
    CHECK(two.runs.wait());
    two.go.set();
    CHECK(hanging.pool.drain(patience()));
}

TEST_CASE("an abandoned job that ends in time changes nothing, and one abandoned while it waited counts from its start",
          "[tasks][pool][replacement]") {
    Hanging hanging;
    HeldJob second;
    hanging.pool.submit(second.job);
    hanging.pool.abandon(hanging.hung.job);
    hanging.pool.abandon(second.job);
    hanging.clock.advance(1h);
    hanging.hung.go.set();
    REQUIRE(second.runs.wait());
    CHECK(hanging.replaced_after(0s) == 0);
    CHECK(hanging.replaced_after(5s) == 1);
    second.go.set();
    CHECK(second.done.wait());
}

TEST_CASE("replacements are bounded; a pool without spare workers whose workers all hang is not healthy",
          "[tasks][pool][replacement]") {
    Hanging hanging(1);
    hanging.pool.abandon(hanging.hung.job);
    CHECK(hanging.pool.healthy());
    CHECK(hanging.replaced_after(5s) == 1);
    CHECK(hanging.pool.healthy());

    HeldJob again;
    hanging.pool.submit(again.job);
    REQUIRE(again.runs.wait());
    hanging.pool.abandon(again.job);
    CHECK(hanging.pool.healthy());
    CHECK(hanging.replaced_after(5s) == 1);
    CHECK_FALSE(hanging.pool.healthy());

    again.go.set();
    hanging.until_finished(1);
    CHECK(hanging.pool.healthy());
}
