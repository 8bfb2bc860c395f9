#include "util/time_text.hpp"

#include <catch2/catch_test_macros.hpp>

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
