#include "runtime/calls/kept_results.hpp"

#include <catch2/catch_test_macros.hpp>

#include "unit/runtime/service/call_helpers.hpp"

using namespace shared_tensor;
using namespace shared_tensor::test;
using namespace std::chrono_literals;
using runtime::ResultCache;

namespace {

constexpr std::uint64_t kMuch = 1 << 30;

runtime::OutcomePointer text(std::size_t bytes) { return outcome_of(std::string(bytes, 'x')); }
std::uint64_t cost(const char* key, std::size_t bytes) { return text(bytes)->bytes().host + std::string(key).size(); }

}  // namespace

TEST_CASE("a kept result is found until its time is over", "[service]") {
    ManualClock clock;
    ResultCache cache(kMuch, clock);
    const auto outcome = text(1);
    cache.store("k", "f", 10s, kMuch, outcome);
    clock.advance(10s - 1ms);
    CHECK(cache.find("k") == outcome);
    CHECK(cache.find("other") == nullptr);
    clock.advance(1ms);
    CHECK(cache.find("k") == nullptr);
    CHECK(cache.stats().entries == 1);
    cache.expire();
    CHECK(cache.stats().entries == 0);
    CHECK(cache.stats().bytes == 0);
}

TEST_CASE("the cache counts hits and misses", "[service]") {
    ManualClock clock;
    ResultCache cache(kMuch, clock);
    cache.store("k", "f", 10s, kMuch, text(1));
    cache.find("k");
    cache.find("k");
    cache.find("x");
    CHECK(cache.stats().hits == 2);
    CHECK(cache.stats().misses == 1);
}

TEST_CASE("failures are never kept", "[service]") {
    ManualClock clock;
    ResultCache cache(kMuch, clock);
    cache.store("k", "f", 10s, kMuch, runtime::make_outcome(json_rpc::internal_error()));
    CHECK(cache.find("k") == nullptr);
}

TEST_CASE("the result used longest ago goes first when the cache is full", "[service]") {
    ManualClock clock;
    ResultCache cache(3 * cost("a", 1000), clock);
    for (const char* key : {"a", "b", "c"})
        cache.store(key, "f", 10s, kMuch, text(1000));
    cache.find("a");
    cache.store("d", "f", 10s, kMuch, text(1000));
    CHECK(cache.find("b") == nullptr);
    CHECK(cache.find("a") != nullptr);
    CHECK(cache.stats().entries == 3);
    CHECK(cache.stats().bytes == 3 * cost("a", 1000));
}

TEST_CASE("a function's bound makes room among its own results only", "[service]") {
    ManualClock clock;
    ResultCache cache(kMuch, clock);
    const std::uint64_t bound = 2 * cost("a", 1000);
    cache.store("other", "g", 10s, bound, text(1000));
    for (const char* key : {"a", "b", "c"})
        cache.store(key, "f", 10s, bound, text(1000));
    CHECK(cache.find("a") == nullptr);
    CHECK(cache.find("b") != nullptr);
    CHECK(cache.find("c") != nullptr);
    CHECK(cache.find("other") != nullptr);
}

TEST_CASE("a result beyond a bound is not kept, and pushes nothing out", "[service]") {
    ManualClock clock;
    ResultCache cache(cost("a", 1000), clock);
    cache.store("a", "f", 10s, kMuch, text(1000));
    cache.store("b", "f", 10s, kMuch, text(2000));
    cache.store("c", "g", 10s, 10, text(500));
    CHECK(cache.find("a") != nullptr);
    CHECK(cache.stats().entries == 1);
}

TEST_CASE("a result stored again replaces the old one", "[service]") {
    ManualClock clock;
    ResultCache cache(kMuch, clock);
    cache.store("k", "f", 10s, kMuch, text(5000));
    const auto second = text(1);
    cache.store("k", "f", 10s, kMuch, second);
    CHECK(cache.find("k") == second);
    CHECK(cache.stats().entries == 1);
    CHECK(cache.stats().bytes == cost("k", 1));
}

TEST_CASE("clear forgets one function's results, or all", "[service]") {
    ManualClock clock;
    ResultCache cache(kMuch, clock);
    cache.store("a", "f", 10s, kMuch, text(1));
    cache.store("b", "f", 10s, kMuch, text(1));
    cache.store("c", "g", 10s, kMuch, text(1));
    CHECK(cache.clear("f") == 2);
    CHECK(cache.find("c") != nullptr);
    CHECK(cache.clear("") == 1);
    CHECK(cache.stats().bytes == 0);
}
