#include "runtime/calls/kept_results.hpp"

#include <catch2/catch_test_macros.hpp>

#include "support/manual_clock.hpp"

using namespace shared_tensor;
using namespace shared_tensor::test;
using namespace std::chrono_literals;
using runtime::IdempotencyTable;

namespace {

runtime::KeyedRun task(const char* id) { return std::string(id); }
std::string id_of(const std::optional<IdempotencyTable::Known>& known) { return std::get<std::string>(known->run); }

}  // namespace

TEST_CASE("the first run under a key is the one that later requests find", "[service]") {
    ManualClock clock;
    IdempotencyTable table({}, clock);
    CHECK_FALSE(table.find("k", "1"));
    CHECK_FALSE(table.insert("k", "1", task("first")));
    const auto second = table.insert("k", "1", task("second"));
    CHECK(id_of(second) == "first");
    CHECK(second->same_arguments);
    CHECK_FALSE(table.find("k", "2")->same_arguments);
}

TEST_CASE("a key is known for its window after the end of its run", "[service]") {
    ManualClock clock;
    IdempotencyTable table({.window = 10s}, clock);
    table.insert("k", "1", task("first"));
    clock.advance(1h);
    table.ended("k", 0);
    clock.advance(10s - 1ms);
    CHECK(table.find("k", "1"));
    clock.advance(1ms);
    CHECK_FALSE(table.find("k", "1"));
    CHECK_FALSE(table.insert("k", "1", task("second")));
    CHECK(id_of(table.find("k", "1")) == "second");
    table.ended("k", 0);
    clock.advance(10s);
    table.expire();
    CHECK(table.size() == 0);
}

TEST_CASE("a forgotten key may be used again", "[service]") {
    ManualClock clock;
    IdempotencyTable table({.window = 10s}, clock);
    table.insert("k", "1", task("first"));
    table.ended("k", 0);
    table.forget("k");
    clock.advance(5s);
    CHECK_FALSE(table.insert("k", "2", task("second")));
    table.ended("k", 0);
    clock.advance(5s);  // the time of the first, forgotten one
    table.expire();
    CHECK(id_of(table.find("k", "2")) == "second");
}

TEST_CASE("the keys that ended first go when there are too many", "[service]") {
    ManualClock clock;
    IdempotencyTable table({}, clock);
    for (const char* key : {"a", "b", "c"})
        table.insert(key, "", task(key));
    for (const char* key : {"b", "a", "c"})
        table.ended(key, 0);
    for (int i = 0; i < 9'998; ++i) {  // the last two each fill the table of 10,000
        const std::string key = "more " + std::to_string(i);
        table.insert(key, "", task(key.c_str()));
        table.ended(key, 0);
    }
    CHECK_FALSE(table.find("b", ""));
    CHECK_FALSE(table.find("a", ""));
    CHECK(table.find("c", ""));
}

TEST_CASE("the key of a run that goes on is never dropped", "[service]") {
    ManualClock clock;
    IdempotencyTable table({.window = 10s, .max_bytes = 10}, clock);
    for (const char* key : {"a", "b", "c"})
        table.insert(key, "more than ten bytes of arguments", task(key));
    clock.advance(1h);
    table.expire();
    for (const char* key : {"a", "b", "c"})
        CHECK(table.find(key, "more than ten bytes of arguments"));
}

TEST_CASE("the keys that ended first go when their arguments and results hold too many bytes", "[service]") {
    ManualClock clock;
    IdempotencyTable table({.max_bytes = 1000}, clock);
    table.insert("a", "", task("a"));
    table.insert("b", std::string(300, 'x'), task("b"));
    table.ended("a", 600);
    CHECK(table.size() == 2);
    table.ended("b", 200);
    CHECK_FALSE(table.find("a", ""));
    CHECK(table.size() == 1);
}
