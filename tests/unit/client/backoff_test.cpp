#include <catch2/catch_test_macros.hpp>
#include <set>
#include <stdexcept>

#include <shared_tensor/retry.hpp>

#include "client/call/core.hpp"

using namespace shared_tensor;
using std::chrono::milliseconds;

namespace {

const TransportFailure kRejected("rejected", false);

std::optional<milliseconds> after(const RetryStrategy& strategy, int number) {
    return strategy(FailedTry{number, kRejected});
}

Backoff with_random(double value) {
    Backoff backoff;
    backoff.initial = milliseconds(100);
    backoff.longest = milliseconds(1000);
    backoff.tries = 10;
    backoff.random = [value] { return value; };
    return backoff;
}

}  // namespace

TEST_CASE("The bound of a backoff doubles from try to try", "[client]") {
    const auto strategy = exponential_backoff(with_random(1.0));
    CHECK(after(strategy, 1) == milliseconds(100));
    CHECK(after(strategy, 2) == milliseconds(200));
    CHECK(after(strategy, 3) == milliseconds(400));
}

TEST_CASE("No pause is longer than the longest", "[client]") {
    const auto strategy = exponential_backoff(with_random(1.0));
    CHECK(after(strategy, 5) == milliseconds(1000));
    CHECK(after(strategy, 9) == milliseconds(1000));
}

TEST_CASE("A backoff's pause is any part of its bound, from nothing to all", "[client]") {
    CHECK(after(exponential_backoff(with_random(0.0)), 3) == milliseconds(0));
    CHECK(after(exponential_backoff(with_random(0.25)), 3) == milliseconds(100));
}

TEST_CASE("A random number out of range does no harm", "[client]") {
    CHECK(after(exponential_backoff(with_random(7.0)), 1) == milliseconds(100));
    CHECK(after(exponential_backoff(with_random(-1.0)), 1) == milliseconds(0));
}

TEST_CASE("Without a generator given, pauses differ", "[client]") {
    Backoff backoff;
    backoff.initial = milliseconds(1'000'000);
    backoff.longest = milliseconds(1'000'000);
    const auto strategy = exponential_backoff(backoff);
    std::set<milliseconds> pauses;
    for (int i = 0; i < 20; ++i)
        pauses.insert(*after(strategy, 1));
    CHECK(pauses.size() > 10);
}

TEST_CASE("After the last try there is no pause but an end", "[client]") {
    Backoff backoff;
    backoff.tries = 3;
    const auto strategy = exponential_backoff(backoff);
    CHECK(after(strategy, 2).has_value());
    CHECK_FALSE(after(strategy, 3).has_value());
}

TEST_CASE("Thousands of tries overflow nothing", "[client]") {
    Backoff backoff = with_random(1.0);
    backoff.tries = 1'000'000;
    CHECK(after(exponential_backoff(backoff), 100'000) == milliseconds(1000));
}

TEST_CASE("Delays below zero and a factor below one are rejected", "[client]") {
    Backoff backoff;
    backoff.initial = milliseconds(-1);
    CHECK_THROWS_AS(exponential_backoff(backoff), std::invalid_argument);
    backoff = {};
    backoff.factor = 0.5;
    CHECK_THROWS_AS(exponential_backoff(backoff), std::invalid_argument);
    CHECK_THROWS_AS(fixed_delay(milliseconds(-1), 2), std::invalid_argument);
}

TEST_CASE("A fixed delay stays the same until the tries are used up", "[client]") {
    const auto strategy = fixed_delay(milliseconds(30), 3);
    CHECK(after(strategy, 1) == milliseconds(30));
    CHECK(after(strategy, 2) == milliseconds(30));
    CHECK_FALSE(after(strategy, 3).has_value());
}

TEST_CASE("no_retry never repeats", "[client]") { CHECK_FALSE(after(no_retry(), 1).has_value()); }

TEST_CASE("A budget lets through what is saved and then what calls earn", "[client]") {
    client::Budget budget({0.5, 2});
    CHECK(budget.spend());
    CHECK(budget.spend());
    CHECK_FALSE(budget.spend());
    budget.earn();
    CHECK_FALSE(budget.spend());
    budget.earn();
    CHECK(budget.spend());
    CHECK_FALSE(budget.spend());
}

TEST_CASE("A budget saves no more than its bound", "[client]") {
    client::Budget budget({1, 2});
    for (int i = 0; i < 100; ++i)
        budget.earn();
    CHECK(budget.spend());
    CHECK(budget.spend());
    CHECK_FALSE(budget.spend());
}

TEST_CASE("A negative budget is rejected", "[client]") {
    CHECK_THROWS_AS(client::Budget({-1, 2}), std::invalid_argument);
    CHECK_THROWS_AS(client::Budget({1, -2}), std::invalid_argument);
}
