#include "base/concurrency/budget.hpp"

#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <thread>
#include <vector>

#include "support/manual_clock.hpp"

using namespace shared_tensor;
using namespace std::chrono_literals;

namespace {

/// How many pass before one has to wait.
int count_passing(RateLimit& limit, int most = 10'000) {
    int passed = 0;
    while (passed < most && !limit.take())
        ++passed;
    return passed;
}

TEST_CASE("a second's worth passes at once, what was not used is kept for a second, and in the long run so many pass",
          "[util][rate_limit]") {
    test::ManualClock clock;
    RateLimit limit(10, clock);
    CHECK(count_passing(limit) == 10);
    clock.advance(1h);
    int passed = count_passing(limit);
    CHECK(passed == 10);
    for (int i = 0; i < 1000; ++i) {
        clock.advance(25ms);
        passed += count_passing(limit);
    }
    CHECK(passed >= 10 + 249);
    CHECK(passed <= 10 + 250);
}

TEST_CASE("whoever waits as long as it was told passes, and not much earlier", "[util][rate_limit]") {
    for (const std::size_t rate : {1, 3, 7, 100, 999}) {
        INFO(rate << " a second");
        test::ManualClock clock;
        RateLimit limit(rate, clock);
        count_passing(limit);
        for (int i = 0; i < 20; ++i) {
            const auto wait = limit.take();
            REQUIRE(wait);
            REQUIRE(*wait > 0ms);
            clock.advance(*wait - 2ms);
            CHECK(limit.take());
            clock.advance(2ms);
            CHECK_FALSE(limit.take());
        }
    }
}

TEST_CASE("what costs more than is left passes, asked for or charged afterwards, and those behind it pay",
          "[util][rate_limit]") {
    for (const bool afterwards : {false, true}) {
        test::ManualClock clock;
        RateLimit limit(10, clock);
        CHECK_FALSE(limit.take(afterwards ? 1 : 30));
        if (afterwards) limit.charge(29);
        limit.charge(0);
        const auto wait = limit.take();
        REQUIRE(wait);
        CHECK(*wait > 2s);
        CHECK(*wait <= 2101ms);
        clock.advance(2s);
        CHECK(limit.take());
        clock.advance(101ms);
        CHECK_FALSE(limit.take());
    }
}

TEST_CASE("nobody is told to wait for more than a minute, whatever is owed", "[util][rate_limit]") {
    const test::ManualClock clock;
    RateLimit limit(1, clock);
    CHECK_FALSE(limit.take(1'000'000'000'000));
    const auto wait = limit.take();
    REQUIRE(wait);
    CHECK(*wait >= 60s);
    CHECK(*wait <= 61s);
}

TEST_CASE("zero is no limit", "[util][rate_limit]") {
    RateLimit limit(0);
    CHECK(count_passing(limit) == 10'000);
    limit.charge(1'000'000);
    CHECK_FALSE(limit.take(1'000'000));
}

TEST_CASE("threads share one limit", "[util][rate_limit]") {
    const test::ManualClock clock;
    RateLimit limit(1000, clock);
    std::atomic<int> passed{0};
    std::vector<std::jthread> threads;
    for (int t = 0; t < 4; ++t)
        threads.emplace_back([&] { passed += count_passing(limit); });
    threads.clear();
    CHECK(passed == 1000);
}

TEST_CASE("a budget gives out what it has, and not more, whoever asks for more meanwhile", "[util][budget]") {
    Budget budget(1000);
    std::atomic<bool> stop{false};
    std::jthread greedy([&] {
        while (!stop)
            budget.take(1'000'000);
    });
    int rejected = 0;
    for (int i = 0; i < 200'000; ++i) {
        if (!budget.take(1)) ++rejected;
    }
    stop = true;
    greedy.join();
    CHECK(rejected == 0);
    CHECK(budget.used() == 0);
    CHECK(budget.take(1000));
    CHECK_FALSE(budget.take(1001));
}

}  // namespace
