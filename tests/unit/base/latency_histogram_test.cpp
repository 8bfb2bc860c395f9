#include "base/bytes/latency_histogram.hpp"

#include <catch2/catch_test_macros.hpp>
#include <thread>
#include <vector>

using namespace shared_tensor;
using std::chrono::nanoseconds;

TEST_CASE("An empty histogram is all zero", "[util]") {
    const auto latency = LatencyHistogram().summary();
    CHECK(latency.count == 0);
    CHECK(latency.p50 == nanoseconds(0));
    CHECK(latency.max == nanoseconds(0));
}

TEST_CASE("A single value is every percentile, exactly", "[util]") {
    for (const std::int64_t value : {0LL, 1LL, 15LL, 16LL, 17LL, 123'456'789LL, 3'600'000'000'000LL}) {
        LatencyHistogram histogram;
        histogram.record(nanoseconds(value));
        const auto latency = histogram.summary();
        INFO(value);
        CHECK(latency.count == 1);
        CHECK(latency.p50 == nanoseconds(value));
        CHECK(latency.p99 == nanoseconds(value));
        CHECK(latency.max == nanoseconds(value));
    }
}

TEST_CASE("A percentile is at most a sixteenth too high and never too low", "[util]") {
    for (std::int64_t top = 100; top < 1'000'000'000'000; top *= 7) {
        LatencyHistogram histogram;
        for (std::int64_t i = 1; i <= 100; ++i)
            histogram.record(nanoseconds(top / 100 * i));
        const auto latency = histogram.summary();
        const auto check = [top](nanoseconds seen, std::int64_t percent) {
            const std::int64_t exact = top / 100 * percent;
            INFO("top " << top << ", percentile " << percent << ", seen " << seen.count());
            CHECK(seen.count() >= exact);
            CHECK(seen.count() <= exact + exact / 16 + 1);
        };
        check(latency.p50, 50);
        check(latency.p90, 90);
        check(latency.p99, 99);
    }
}

TEST_CASE("The slowest one percent is beyond p99, not in it", "[util]") {
    LatencyHistogram histogram;
    for (int i = 0; i < 990; ++i)
        histogram.record(nanoseconds(1000));
    for (int i = 0; i < 10; ++i)
        histogram.record(nanoseconds(1'000'000));
    const auto latency = histogram.summary();
    CHECK(latency.p99 < nanoseconds(1100));
    CHECK(latency.max == nanoseconds(1'000'000));
}

TEST_CASE("A duration below zero counts as zero", "[util]") {
    LatencyHistogram histogram;
    histogram.record(nanoseconds(-5));
    CHECK(histogram.summary().count == 1);
    CHECK(histogram.summary().max == nanoseconds(0));
}

TEST_CASE("A duration beyond the last bucket is counted, and is the maximum", "[util]") {
    LatencyHistogram histogram;
    histogram.record(std::chrono::hours(24 * 365));
    CHECK(histogram.summary().count == 1);
    CHECK(histogram.summary().max == std::chrono::hours(24 * 365));
}

TEST_CASE("No value is lost when many threads record", "[util]") {
    LatencyHistogram histogram;
    {
        std::vector<std::jthread> threads;
        for (int t = 0; t < 4; ++t) {
            threads.emplace_back([&histogram, t] {
                for (int i = 0; i < 10'000; ++i)
                    histogram.record(nanoseconds(t * 10'000 + i));
            });
        }
    }
    CHECK(histogram.summary().count == 40'000);
    CHECK(histogram.summary().max == nanoseconds(39'999));
}
