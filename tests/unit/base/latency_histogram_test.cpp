#include "base/bytes/latency_histogram.hpp"

#include <catch2/catch_test_macros.hpp>
#include <thread>
#include <vector>

using namespace shared_tensor;
using std::chrono::nanoseconds;

TEST_CASE("A single value is every percentile, exactly; none is zero", "[util]") {
    CHECK(LatencyHistogram().summary().count == 0);
    CHECK(LatencyHistogram().summary().max == nanoseconds(0));
    constexpr std::int64_t kYear = 31'536'000'000'000'000;  // beyond the last bucket
    for (const std::int64_t value : {-5L, 0L, 1L, 15L, 16L, 17L, 123'456'789L, 3'600'000'000'000L, kYear}) {
        LatencyHistogram histogram;
        histogram.record(nanoseconds(value));
        const auto latency = histogram.summary();
        const nanoseconds expected(std::max<std::int64_t>(value, 0));
        INFO(value);
        CHECK(latency.count == 1);
        CHECK(latency.max == expected);
        CHECK(latency.p50 == expected);
        CHECK(latency.p99 == expected);
    }
}

TEST_CASE("A percentile is at most a sixteenth too high and never too low", "[util]") {
    for (std::int64_t top = 100; top < 1'000'000'000'000; top *= 7) {
        LatencyHistogram histogram;
        for (std::int64_t i = 1; i <= 100; ++i)
            histogram.record(nanoseconds(top / 100 * i));
        const auto latency = histogram.summary();
        for (const auto& [seen, percent] : {std::pair(latency.p50, 50), {latency.p90, 90}, {latency.p99, 99}}) {
            const std::int64_t exact = top / 100 * percent;
            INFO("top " << top << ", percentile " << percent << ", seen " << seen.count());
            CHECK(seen.count() >= exact);
            CHECK(seen.count() <= exact + exact / 16 + 1);
        }
    }
}

TEST_CASE("No value is lost when many threads record", "[util]") {
    LatencyHistogram histogram;
    std::vector<std::jthread> threads;
    for (int t = 0; t < 4; ++t) {
        threads.emplace_back([&histogram, t] {
            for (int i = 0; i < 10'000; ++i)
                histogram.record(nanoseconds(t * 10'000 + i));
        });
    }
    threads.clear();
    CHECK(histogram.summary().count == 40'000);
    CHECK(histogram.summary().max == nanoseconds(39'999));
}
