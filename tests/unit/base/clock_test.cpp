#include "base/concurrency/clock.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <stdexcept>

using namespace shared_tensor;
using namespace std::chrono;
using Catch::Matchers::ContainsSubstring;

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
