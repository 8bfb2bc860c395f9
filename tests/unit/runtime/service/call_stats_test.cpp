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
