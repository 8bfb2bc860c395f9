#include "base/concurrency/clock.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <stdexcept>

using namespace shared_tensor;
using namespace std::chrono;

TEST_CASE("times are ISO 8601 in UTC with milliseconds, rounded down, before 1970 too", "[util][time]") {
    const struct {
        nanoseconds since_epoch;
        const char* text;
    } table[] = {
        {0ns, "1970-01-01T00:00:00.000Z"},
        {1ms, "1970-01-01T00:00:00.001Z"},
        {1'999'999ns, "1970-01-01T00:00:00.001Z"},
        {seconds(1'767'323'045) + 678ms, "2026-01-02T03:04:05.678Z"},
        {seconds(951'782'400), "2000-02-29T00:00:00.000Z"},
        {-1ms, "1969-12-31T23:59:59.999Z"},
        {-1ns, "1969-12-31T23:59:59.999Z"},
        {-1s, "1969-12-31T23:59:59.000Z"},
    };
    for (const auto& row : table) {
        CHECK(iso8601(system_clock::time_point(duration_cast<system_clock::duration>(row.since_epoch))) == row.text);
    }
}

TEST_CASE("a duration has a unit", "[util][time]") {
    CHECK(parse_duration("500ms") == 500ms);
    CHECK(parse_duration("30s") == 30s);
    CHECK(parse_duration("5m") == 5min);
    CHECK(parse_duration("1h") == 1h);
    CHECK(parse_duration("0") == 0ms);
    CHECK(parse_duration("0s") == 0ms);
    CHECK(parse_duration("1209600000ms") == hours(14 * 24));
    CHECK(parse_duration("876000h") == hours(876'000));
}

TEST_CASE("a number without a unit is rejected, and the error says what to write", "[util][time]") {
    CHECK_THROWS_WITH(parse_duration("5"), Catch::Matchers::ContainsSubstring("5s for seconds, 5ms for milliseconds"));
}

TEST_CASE("a duration that no clock can wait for is rejected with the longest one", "[util][time]") {
    CHECK_THROWS_WITH(parse_duration("10000000h"), Catch::Matchers::ContainsSubstring("at most 876000h"));
}

TEST_CASE("what is no duration is rejected", "[util][time]") {
    for (const char* text : {"", "s", "ms", "-1s", "+1s", "1.5s", "1 s", " 1s", "1s ", "1S", "1d", "876001h",
                             "99999999999999999999s", "0x1s"}) {
        INFO(text);
        CHECK_THROWS_AS(parse_duration(text), std::invalid_argument);
    }
}
