#include "runtime/functions/call_stats.hpp"

#include <catch2/catch_test_macros.hpp>
#include <chrono>

using namespace shared_tensor;
using namespace shared_tensor::runtime;
using std::chrono::nanoseconds;

TEST_CASE("a duration is counted in the bucket whose limit is the next power of two above it", "[service]") {
    struct Case {
        std::int64_t ns;
        std::size_t bucket;
    };
    for (const Case& one : std::initializer_list<Case>{
             {-1, 0},
             {0, 0},
             {8'191, 0},
             {8'192, 1},
             {16'383, 1},
             {16'384, 2},
             {(std::int64_t{1} << 35) - 1, 22},
             {std::int64_t{1} << 35, 23},
             {std::int64_t{1} << 62, 23},
         }) {
        INFO(one.ns);
        DurationBuckets buckets;
        buckets.record(nanoseconds(one.ns));
        const auto read = buckets.read();
        for (std::size_t i = 0; i < read.counts.size(); ++i)
            CHECK(read.counts[i] == (i == one.bucket ? 1 : 0));
        CHECK(read.sum_ns == static_cast<std::uint64_t>(std::max<std::int64_t>(one.ns, 0)));
    }
    CHECK(DurationBuckets::Counts::limit_of(0) == 8192e-9);
    CHECK(DurationBuckets::Counts::limit_of(22) == 34.359738368);
}

TEST_CASE("a call is counted by its error code; unknown codes are counted together", "[service]") {
    CallStats stats;
    for (const int code : {0, 0, -32000, -32602, -32001, -32010, -32603, -1, 42, 42})
        stats.count(code);
    const auto count_of = [&](std::string_view name) {
        for (std::size_t i = 0; i < kCallOutcomes.size(); ++i) {
            if (kCallOutcomes[i].name == name) return stats.outcomes()[i];
        }
        return std::uint64_t{999};
    };
    CHECK(count_of("ok") == 2);
    CHECK(count_of("function_failed") == 1);
    CHECK(count_of("invalid_params") == 1);
    CHECK(count_of("busy") == 1);
    CHECK(count_of("input_failed") == 1);
    CHECK(count_of("internal_error") == 1);
    CHECK(count_of("other") == 3);
    CHECK(count_of("cancelled") == 0);
}
