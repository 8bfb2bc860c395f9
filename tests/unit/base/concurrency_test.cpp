#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "base/concurrency/alarms.hpp"
#include "base/concurrency/background.hpp"
#include "base/concurrency/budget.hpp"
#include "base/concurrency/clock.hpp"
#include "base/concurrency/owned_table.hpp"
#include "support/manual_clock.hpp"

using namespace shared_tensor;
using namespace std::chrono_literals;
using namespace std::chrono;
using Catch::Matchers::ContainsSubstring;

TEST_CASE("work in the background is done in order, on a thread of its own, and flush waits for it", "[util]") {
    std::vector<int> done, expected(100);
    std::iota(expected.begin(), expected.end(), 0);
    {
        Background background("test");
        bool elsewhere = true;
        for (int i = 0; i < 99; ++i) {
            background.post([&, i, poster = std::this_thread::get_id()] {
                if (std::this_thread::get_id() == poster) elsewhere = false;
                done.push_back(i);
            });
        }
        background.flush();
        CHECK(done.size() == 99);
        CHECK(elsewhere);
        background.post([&] { background.post([&] { done.push_back(99); }); });  // work may post more work
    }
    CHECK(done == expected);
}

TEST_CASE("later work is done in its time, and at the end at the latest", "[util]") {
    std::vector<int> done;
    {
        Background background("test");
        std::promise<void> begin, second;
        background.post([&] { begin.get_future().wait(); });  // until all of them are there
        background.post_after(std::chrono::hours(1), [&] { done.push_back(3); });
        background.post_after(std::chrono::milliseconds(1), [&] { done.push_back(2); });
        background.post([&] { done.push_back(1); });
        background.post_after(std::chrono::milliseconds(2), [&] { second.set_value(); });
        begin.set_value();
        second.get_future().wait();
        CHECK(done == std::vector<int>{1, 2});
    }
    CHECK(done == std::vector<int>{1, 2, 3});
}

namespace {

/// How many pass before one has to wait.
int count_passing(RateLimit& limit, int most = 10'000) {
    int passed = 0;
    while (passed < most && !limit.take())
        ++passed;
    return passed;
}

namespace {

struct TestAlarm final : Alarms::Alarm {
    std::function<SteadyTime(int count)> on_ring = [](int) { return SteadyTime::max(); };
    std::atomic<int> rung{0};

    SteadyTime ring(SteadyTime) noexcept override {
        const SteadyTime next = on_ring(++rung);
        rung.notify_all();
        return next;
    }
    void wait_for(int count) {
        for (int now = rung; now < count; now = rung)
            rung.wait(now);
    }
};

}  // namespace

TEST_CASE("an alarm rings when it is due, and again as often as it says", "[util]") {
    Alarms alarms("test");
    TestAlarm later, soon;
    alarms.add(later, SteadyTime::max());
    const SteadyTime begun = real_clock().now();
    soon.on_ring = [&](int count) { return count < 3 ? begun + count * 30ms : SteadyTime::max(); };
    alarms.add(soon, begun + 1ms);
    soon.wait_for(3);
    CHECK(real_clock().now() - begun >= 60ms);
    alarms.ring_now(soon);
    soon.wait_for(4);
    CHECK(later.rung == 0);
    alarms.remove(soon);
    alarms.remove(later);
}

TEST_CASE("an alarm that was removed does not ring, and one that rings is waited for", "[util]") {
    Alarms alarms("test");
    TestAlarm removed, slow;
    for (SteadyTime due{}; real_clock().now() >= due;) {  // until it was removed in time
        removed.rung = 0;
        due = real_clock().now() + 50ms;
        alarms.add(removed, due);
        alarms.remove(removed);
    }
    std::atomic<bool> ended = false;
    slow.on_ring = [&](int) {
        std::this_thread::sleep_for(100ms);
        ended = true;
        return SteadyTime::min();
    };
    alarms.add(slow, real_clock().now());
    while (slow.rung == 0)
        std::this_thread::yield();
    alarms.remove(slow);
    CHECK(ended);
    CHECK(removed.rung == 0);
}

TEST_CASE("an alarm that is always due is removed after the ring that is going on", "[util]") {
    constexpr int kRounds = 20;
    Alarms alarms("test");
    int rounds_without_further_ring = 0;
    for (int round = 0; round < kRounds; ++round) {
        TestAlarm alarm;
        std::atomic<bool> removing = false;
        std::atomic<int> further = 0;
        alarm.on_ring = [&](int) {
            if (removing) ++further;
            std::this_thread::sleep_for(10ms);
            return SteadyTime::min();
        };
        alarms.add(alarm, SteadyTime::min());
        alarm.wait_for(1);
        removing = true;
        alarms.remove(alarm);
        if (further == 0) ++rounds_without_further_ring;
    }
    CHECK(rounds_without_further_ring > kRounds / 2);  // not all: this thread may be late in remove()
}

TEST_CASE("an alarm that is rung while it rings, rings again", "[util]") {
    Alarms alarms("test");
    TestAlarm alarm;
    alarm.on_ring = [&](int count) {
        if (count == 1) alarms.ring_now(alarm);
        return SteadyTime::max();
    };
    alarms.add(alarm, real_clock().now() + 1ms);
    alarm.wait_for(2);
    alarms.remove(alarm);
    CHECK(alarm.rung == 2);
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

using Table = OwnedTable<std::string>;

TEST_CASE("an owned table sums entries and bytes of all and of each owner, and finds those of one owner",
          "[owned_table]") {
    Table table;
    table.add("a", "ann", 10, Table::kNever, "A");
    Table::Entry& b = table.add("b", "ann", 5, Table::kNever, "B");
    table.add("c", "bob", 1, Table::kNever, "C");
    table.add("d", "ann", 1, Table::kNever, "D");
    CHECK(table.sums().entries == 4);
    CHECK(table.sums().bytes == 17);
    CHECK(table.sums_of("ann").entries == 3);
    CHECK(table.sums_of("ann").bytes == 16);
    table.set_bytes(b, 7);
    CHECK(table.sums_of("ann").bytes == 18);
    CHECK(table.take(b) == "B");
    CHECK(table.find("b") == nullptr);
    CHECK(table.sums_of("ann").bytes == 11);
    CHECK(table.sums().bytes == 12);
    std::string taken;
    while (Table::Entry* const entry = table.any_of("ann"))
        taken += table.take(*entry);
    CHECK((taken == "AD" || taken == "DA"));
    CHECK(table.sums_of("ann").entries == 0);
    CHECK(table.find("c")->owner() == "bob");
    CHECK(table.sums().entries == 1);
}

TEST_CASE("an owned table gives out what is due in the order of the deadlines", "[owned_table]") {
    OwnedTable<std::unique_ptr<std::string>> table;  // values that can only be moved
    const auto add = [&](const char* key, SteadyTime deadline) -> auto& {
        return table.add(key, "", 0, deadline, std::make_unique<std::string>(key));
    };
    const SteadyTime start;
    add("late", start + 3s);
    add("never", Table::kNever);
    auto& moved = add("moved", start + 1s);
    add("early", start + 2s);
    CHECK(table.first()->key() == "moved");
    table.set_deadline(moved, start + 2s);  // equal ones go in the order in which they were set
    CHECK(table.first_due(start + 1s) == nullptr);
    REQUIRE(table.first_due(start + 2s) != nullptr);
    std::string taken;
    while (auto* const entry = table.first_due(start + 10s))
        taken += *table.take(*entry) + ' ';
    CHECK(taken == "early moved late ");
    CHECK(table.first() == nullptr);
    CHECK(table.entries().size() == 1);
}

TEST_CASE("times are ISO 8601 in UTC with milliseconds, rounded down, before 1970 too", "[util][time]") {
    const struct {
        nanoseconds since_epoch;
        const char* text;
    } table[] = {
        {0ns, "1970-01-01T00:00:00.000Z"},
        {1'999'999ns, "1970-01-01T00:00:00.001Z"},
        {seconds(1'767'323'045) + 678ms, "2026-01-02T03:04:05.678Z"},
        {seconds(951'782'400), "2000-02-29T00:00:00.000Z"},
        {-1ns, "1969-12-31T23:59:59.999Z"},
        {-1s, "1969-12-31T23:59:59.000Z"},
    };
    for (const auto& row : table) {
        CHECK(iso8601(system_clock::time_point(duration_cast<system_clock::duration>(row.since_epoch))) == row.text);
    }
}

TEST_CASE("a duration has a unit", "[util][time]") {
    const std::pair<const char*, milliseconds> table[] = {
        {"500ms", 500ms},
        {"30s", 30s},
        {"5m", 5min},
        {"1h", 1h},
        {"0", 0ms},
        {"0s", 0ms},
        {"1209600000ms", hours(14 * 24)},
        {"876000h", hours(876'000)},
    };
    for (const auto& [text, duration] : table)
        CHECK(parse_duration(text) == duration);
}

TEST_CASE("what is no duration, or none that a clock can wait for, is rejected with what to write", "[util][time]") {
    CHECK_THROWS_WITH(parse_duration("5"), ContainsSubstring("5s for seconds, 5ms for milliseconds"));
    CHECK_THROWS_WITH(parse_duration("10000000h"), ContainsSubstring("at most 876000h"));
    for (const char* text : {"", "s", "ms", "-1s", "+1s", "1.5s", "1 s", " 1s", "1s ", "1S", "1d", "876001h",
                             "99999999999999999999s", "0x1s"}) {
        INFO(text);
        CHECK_THROWS_AS(parse_duration(text), std::invalid_argument);
    }
}
