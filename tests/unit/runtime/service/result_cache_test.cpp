#include "runtime/calls/kept_results.hpp"

#include <catch2/catch_test_macros.hpp>

#include "unit/runtime/service/call_helpers.hpp"

using namespace shared_tensor;
using namespace shared_tensor::test;
using namespace std::chrono_literals;

namespace {

constexpr std::uint64_t kMuch = 1 << 30;

runtime::OutcomePointer text(std::size_t bytes) { return outcome_of(std::string(bytes, 'x')); }
std::uint64_t cost(std::size_t bytes) { return 400 + text(bytes)->bytes().host + 1; }

/// A cache of results of "f", kept for 10 s, with keys of one character.
struct Cache {
    explicit Cache(std::uint64_t bytes = kMuch) : cache(bytes, clock) {}
    runtime::OutcomePointer store(const char* key, std::size_t bytes, const char* function = "f",
                                  std::uint64_t bound = kMuch) {
        const auto outcome = text(bytes);
        cache.store(key, function, 10s, bound, outcome);
        return outcome;
    }
    std::string has() {
        std::string keys;
        for (const char* key : {"a", "b", "c", "d"})
            keys += cache.find(key) != nullptr ? key : "";
        return keys;
    }

    ManualClock clock;
    runtime::ResultCache cache;
};

}  // namespace

TEST_CASE("a kept result is found until its time is over or it is replaced, and look-ups are counted", "[service]") {
    Cache kept;
    kept.store("a", 5000);
    const auto second = kept.store("a", 1);
    CHECK(kept.cache.stats().entries == 1);
    CHECK(kept.cache.stats().bytes == cost(1));
    kept.clock.advance(10s - 1ms);
    CHECK(kept.cache.find("a") == second);
    CHECK(kept.cache.find("b") == nullptr);
    kept.clock.advance(1ms);
    CHECK(kept.cache.find("a") == nullptr);
    CHECK(kept.cache.stats().hits == 1);
    CHECK(kept.cache.stats().misses == 2);
    CHECK(kept.cache.stats().entries == 1);
    kept.cache.expire();
    CHECK(kept.cache.stats().entries == 0);
    CHECK(kept.cache.stats().bytes == 0);
}

TEST_CASE("many results expire in several steps", "[service]") {
    Cache kept;
    for (int i = 0; i < 25'000; ++i)
        kept.store(std::to_string(i).c_str(), 1);
    kept.clock.advance(9s);
    kept.store("young", 1);
    kept.clock.advance(1s);
    for (const std::size_t left : {15'001, 5'001, 1}) {
        kept.cache.expire();
        CHECK(kept.cache.stats().entries == left);
    }
}

TEST_CASE("failures are never kept", "[service]") {
    Cache kept;
    kept.cache.store("a", "f", 10s, kMuch, runtime::make_outcome(json_rpc::internal_error()));
    CHECK(kept.has().empty());
}

TEST_CASE("the result used longest ago goes first when the cache is full", "[service]") {
    Cache kept(3 * cost(1000));
    for (const char* key : {"a", "b", "c"})
        kept.store(key, 1000);
    kept.cache.find("a");
    kept.store("d", 1000);
    CHECK(kept.has() == "acd");
    CHECK(kept.cache.stats().bytes == 3 * cost(1000));
    kept.store("b", 9000);  // beyond the bound: it pushes nothing out
    CHECK(kept.has() == "acd");
}

TEST_CASE("keys that ended first go first when there are too many bytes, and none whose run goes on", "[service]") {
    ManualClock clock;
    runtime::IdempotencyTable keys({.window = 10s, .max_bytes = 1000}, clock);
    const std::string arguments(200, 'x');
    const auto of_one = [](const char* key) { return std::string("principal") + '\0' + key; };
    const auto known = [&](const char* key) {
        const bool is_known = keys.insert(of_one(key), arguments, std::string(key)).has_value();
        if (!is_known) keys.forget(of_one(key));
        return is_known;
    };
    for (const char* key : {"a", "b", "runs"})
        CHECK_FALSE(keys.insert(of_one(key), arguments, std::string(key)));
    const auto first = keys.insert(of_one("a"), arguments, std::string("second"));
    CHECK(std::get<std::string>(first->run) == "a");
    CHECK(first->same_arguments);
    keys.ended(of_one("b"), 0);
    keys.ended(of_one("a"), 400);
    CHECK((known("a") && known("b")));
    keys.insert(of_one("more"), "x", std::string("more"));
    keys.insert(of_one("again"), "x", std::string("again"));
    CHECK((known("a") && !known("b") && known("runs")));
    keys.forget(of_one("a"));
    clock.advance(5s);
    CHECK_FALSE(keys.insert(of_one("a"), arguments, std::string("a")));
    keys.ended(of_one("a"), 0);
    clock.advance(5s);  // the time of the first one, which was forgotten
    keys.expire();
    CHECK(known("a"));
    clock.advance(5s);
    keys.expire();
    CHECK((!known("a") && known("runs")));
    CHECK(keys.size() == 3);
}

TEST_CASE("a function's bound makes room among its own results only, and clear forgets them or all", "[service]") {
    Cache kept;
    const std::uint64_t bound = 2 * cost(1000);
    kept.store("d", 1000, "g", bound);
    for (const char* key : {"a", "b", "c"})
        kept.store(key, 1000, "f", bound);
    CHECK(kept.has() == "bcd");
    kept.store("a", 500, "g", 10);
    CHECK(kept.has() == "bcd");
    CHECK(kept.cache.clear("f") == 2);
    CHECK(kept.has() == "d");
    CHECK(kept.cache.clear("") == 1);
    CHECK(kept.cache.stats().bytes == 0);
}

TEST_CASE("a principal with more than half of the idempotency keys or of their bytes loses its own first",
          "[service]") {
    const ManualClock clock;
    runtime::IdempotencyTable keys({.window = 1h, .max_bytes = 1'000'000}, clock);
    const auto use = [&](const std::string& principal, int number, std::uint64_t bytes) {
        const std::string key = principal + '\0' + "f" + '\0' + std::to_string(number);
        const bool was_known = keys.insert(key, "arguments", text(1)).has_value();
        if (!was_known) keys.ended(key, bytes);
        return was_known;
    };
    CHECK_FALSE(use("alice", 1, 10));
    for (int number = 0; number < 11'000; ++number)
        use("mallory", number, 0);
    CHECK(use("alice", 1, 10));
    CHECK_FALSE(use("mallory", 0, 0));
    use("mallory", 20'000, 2'000'000);
    CHECK(use("alice", 1, 10));
}
