#include "base/bytes/range_set.hpp"

#include <catch2/catch_test_macros.hpp>
#include <random>
#include <set>
#include <string>

namespace shared_tensor {
namespace {

std::string text(const std::vector<NumberRange>& ranges) {
    std::string all;
    for (const auto& [first, end] : ranges)
        all += std::to_string(first) + "-" + std::to_string(end) + " ";
    return all;
}

TEST_CASE("ranges are put together where they touch", "[util]") {
    RangeSet set;
    CHECK(text(set.missing({0, 10})) == "0-10 ");
    set.insert({4, 6});
    CHECK(text(set.missing({0, 10})) == "0-4 6-10 ");
    set.insert({6, 8});
    set.insert({2, 4});
    CHECK(set.ranges() == 1);
    CHECK(set.count() == 6);
    set.insert({9, 10});
    set.insert({0, 20});
    CHECK(set.ranges() == 1);
    CHECK(set.count() == 20);
    CHECK(set.missing({0, 20}).empty());
    CHECK(text(set.missing({5, 25})) == "20-25 ");
}

TEST_CASE("nothing is nothing", "[util]") {
    RangeSet set;
    set.insert({5, 5});
    CHECK(set.ranges() == 0);
    CHECK(set.missing({7, 7}).empty());
    CHECK(set.missing({0, 10}, 0).empty());
}

TEST_CASE("as many gaps are told as are asked for", "[util]") {
    RangeSet set;
    for (std::uint64_t i = 0; i < 100; i += 10)
        set.insert({i, i + 5});
    CHECK(text(set.missing({0, 100}, 2)) == "5-10 15-20 ");
    CHECK(text(set.missing({7, 18}, 2)) == "7-10 15-18 ");
}

TEST_CASE("a set of ranges is the set of their numbers", "[util]") {
    std::mt19937 random(7);  // NOLINT(cert-msc*): the same numbers in every run
    for (int round = 0; round < 200; ++round) {
        RangeSet set;
        std::set<std::uint64_t> numbers;
        for (int i = 0; i < 12; ++i) {
            const std::uint64_t first = random() % 60, end = first + random() % 9;
            set.insert({first, end});
            for (std::uint64_t n = first; n < end; ++n)
                numbers.insert(n);
            const std::uint64_t from = random() % 70, to = from + random() % 20;
            std::set<std::uint64_t> gaps, expected;
            for (const auto& gap : set.missing({from, to})) {
                for (std::uint64_t n = gap.first; n < gap.end; ++n)
                    gaps.insert(n);
            }
            for (std::uint64_t n = from; n < to; ++n) {
                if (!numbers.contains(n)) expected.insert(n);
            }
            REQUIRE(gaps == expected);
            const std::size_t before = set.ranges();
            RangeSet more = set;
            if (from < to) more.insert({from, to});
            if (from < to) REQUIRE(set.touches({from, to}) == (more.ranges() <= before));
            REQUIRE(set.count() == numbers.size());
        }
    }
}

}  // namespace
}  // namespace shared_tensor
