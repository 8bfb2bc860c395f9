#include "base/concurrency/clock.hpp"

#include <catch2/catch_test_macros.hpp>

#include "support/manual_clock.hpp"

using namespace shared_tensor;
using namespace std::chrono_literals;

TEST_CASE("the real clock is the machine's", "[util][clock]") {
    const auto before = std::chrono::steady_clock::now();
    const auto shown = real_clock().now();
    const auto after = std::chrono::steady_clock::now();
    CHECK(before <= shown);
    CHECK(shown <= after);
    const auto wall = real_clock().wall_time() - std::chrono::system_clock::now();
    CHECK(std::chrono::abs(wall) < 1min);
}

TEST_CASE("the real clock is one object", "[util][clock]") { CHECK(&real_clock() == &real_clock()); }

TEST_CASE("a manual clock stands still until it is moved, both its times alike", "[util][clock]") {
    test::ManualClock clock;
    const auto now = clock.now();
    const auto wall = clock.wall_time();
    CHECK(clock.now() == now);
    clock.advance(90s);
    CHECK(clock.now() - now == 90s);
    CHECK(clock.wall_time() - wall == 90s);
}
