#include "base/log/repeated_lines.hpp"

#include <catch2/catch_test_macros.hpp>
#include <string>

using namespace shared_tensor;
using namespace std::chrono_literals;
using log::RepeatedLines;

namespace {

constexpr int kWarn = 3, kError = 4;

SteadyTime after(std::chrono::milliseconds time) { return SteadyTime(std::chrono::hours(1)) + time; }

}  // namespace

TEST_CASE("an equal line within the window is counted, the next one after it is new", "[util][log]") {
    RepeatedLines lines;
    CHECK(lines.is_new(kWarn, "x", after(0ms)));
    CHECK(lines.is_new(kWarn, "y", after(0ms)));
    CHECK(lines.is_new(kError, "x", after(0ms)));
    CHECK_FALSE(lines.is_new(kWarn, "x", after(1ms)));
    CHECK_FALSE(lines.is_new(kWarn, "x", after(9s)));
    CHECK(lines.due(after(9'999ms)).empty());

    const auto counts = lines.due(after(10s));
    REQUIRE(counts.size() == 1);
    CHECK(counts[0].level == kWarn);
    CHECK(counts[0].text == "x");
    CHECK(counts[0].left_out == 2);
    CHECK(lines.due(after(20s)).empty());
    CHECK(lines.is_new(kWarn, "x", after(10s)));
}

TEST_CASE("any number of texts is known in a bounded space: the oldest gives its count and goes", "[util][log]") {
    RepeatedLines lines;
    CHECK(lines.is_new(kWarn, "first", after(0ms)));
    CHECK_FALSE(lines.is_new(kWarn, "first", after(0ms)));
    std::size_t counted = 0;
    for (int i = 0; i < 1'000; ++i) {
        counted += lines.due(after(0ms)).size();
        CHECK(lines.is_new(kWarn, std::to_string(i), after(0ms)));
    }
    CHECK(counted == 1);
    CHECK(lines.all().empty());  // a line that came once has no count
}
