// A worker that hangs in a function that nobody waits for is replaced; when the function ends after all, it leaves.

#include <catch2/catch_test_macros.hpp>
#include <thread>

#include "base/log/log.hpp"
#include "pool_fixture.hpp"
#include "runtime/tasks/worker_pool.hpp"
#include "support/manual_clock.hpp"

using namespace shared_tensor;
using namespace shared_tensor::tasks;
using namespace shared_tensor::test;
using namespace std::chrono_literals;

namespace {

struct Quiet {
    Quiet() { log::set_level(log::Level::off); }
    ~Quiet() { log::set_level(log::Level::info); }
};

/// A pool of one worker with one hanging job that was abandoned.
struct Hanging {
    Quiet quiet;
    ManualClock clock;
    HeldJob hung;
    WorkerPool pool;

    explicit Hanging(std::size_t spare = 2) : pool({.workers = 1}, clock, {.most = spare, .after = 5s}) {
        pool.submit(hung.job);
        hung.runs.wait();
        pool.abandon(hung.job);
    }
    ~Hanging() { hung.go.set(); }
};

void until_finished(const WorkerPool& pool, std::uint64_t finished) {
    const auto deadline = patience();
    while (pool.stats().finished < finished && real_clock().now() < deadline)
        std::this_thread::yield();
}

}  // namespace

TEST_CASE("an abandoned job keeps its worker for a while", "[tasks][pool][replacement]") {
    Hanging hanging;
    hanging.clock.advance(4999ms);
    hanging.pool.sweep();
    CHECK(hanging.pool.stats().replaced == 0);
}

TEST_CASE("the worker of a job abandoned for long is replaced, and waiting jobs run", "[tasks][pool][replacement]") {
    Hanging hanging;
    Event ran;
    hanging.pool.submit(make_job([&] { ran.set(); }));
    hanging.clock.advance(5s);
    hanging.pool.sweep();
    CHECK(hanging.pool.stats().replaced == 1);
    CHECK(ran.wait());
}

TEST_CASE("a job is replaced once, however often tend is called", "[tasks][pool][replacement]") {
    Hanging hanging;
    hanging.clock.advance(5s);
    hanging.pool.sweep();
    hanging.clock.advance(5s);
    hanging.pool.sweep();
    CHECK(hanging.pool.stats().replaced == 1);
}

TEST_CASE("when the abandoned job ends, its surplus worker leaves", "[tasks][pool][replacement]") {
    Hanging hanging;
    hanging.clock.advance(5s);
    hanging.pool.sweep();
    hanging.hung.go.set();
    until_finished(hanging.pool, 1);
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

TEST_CASE("a job that somebody waits for keeps its worker for ever", "[tasks][pool][replacement]") {
    Quiet quiet;
    ManualClock clock;
    HeldJob wanted;
    WorkerPool pool({.workers = 1}, clock);
    pool.submit(wanted.job);
    REQUIRE(wanted.runs.wait());
    clock.advance(1h);
    pool.sweep();
    CHECK(pool.stats().replaced == 0);
    wanted.go.set();
}

TEST_CASE("an abandoned job that ends in time changes nothing", "[tasks][pool][replacement]") {
    Hanging hanging;
    hanging.hung.go.set();
    until_finished(hanging.pool, 1);
    hanging.clock.advance(1h);
    hanging.pool.sweep();
    CHECK(hanging.pool.stats().replaced == 0);
}

TEST_CASE("the time of a job abandoned while it waited counts from its start", "[tasks][pool][replacement]") {
    Quiet quiet;
    ManualClock clock;
    HeldJob first, second;
    WorkerPool pool({.workers = 1}, clock, {.after = 5s});
    pool.submit(first.job);
    pool.submit(second.job);
    pool.abandon(second.job);
    clock.advance(1h);
    first.go.set();
    REQUIRE(second.runs.wait());
    pool.sweep();
    CHECK(pool.stats().replaced == 0);
    clock.advance(5s);
    pool.sweep();
    CHECK(pool.stats().replaced == 1);
    second.go.set();
}

TEST_CASE("an abandoned job keeps its place in its group even when its worker is replaced",
          "[tasks][pool][replacement]") {
    Quiet quiet;
    ManualClock clock;
    const auto serial = make_group(1);
    HeldJob hung({serial});
    Event ran;
    WorkerPool pool({.workers = 1}, clock, {.after = 5s});
    pool.submit(hung.job);
    REQUIRE(hung.runs.wait());
    pool.abandon(hung.job);
    clock.advance(5s);
    pool.sweep();
    pool.submit(make_job([&] { ran.set(); }, {serial}));
    CHECK_FALSE(pool.try_hold({serial}));
    CHECK(pool.stats().queued == 1);
    hung.go.set();
    CHECK(ran.wait());
}

TEST_CASE("replacements are bounded; a pool without spare workers whose workers all hang is not healthy",
          "[tasks][pool][replacement]") {
    Hanging hanging(1);
    CHECK(hanging.pool.healthy());
    hanging.clock.advance(5s);
    hanging.pool.sweep();
    CHECK(hanging.pool.healthy());

    HeldJob again;
    hanging.pool.submit(again.job);
    REQUIRE(again.runs.wait());
    hanging.pool.abandon(again.job);
    CHECK(hanging.pool.healthy());
    hanging.clock.advance(5s);
    hanging.pool.sweep();
    CHECK(hanging.pool.stats().replaced == 1);
    CHECK_FALSE(hanging.pool.healthy());

    again.go.set();
    until_finished(hanging.pool, 1);
    CHECK(hanging.pool.healthy());
}
