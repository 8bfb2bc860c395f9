#include "base/bytes/range_set.hpp"

#include <catch2/catch_test_macros.hpp>
#include <random>
#include <set>

namespace shared_tensor {
namespace {

using Numbers = std::set<std::uint64_t>;

Numbers numbers_of(const std::vector<NumberRange>& ranges) {
    Numbers all;
    for (const auto& [first, end] : ranges) {
        for (std::uint64_t n = first; n < end; ++n)
            all.insert(n);
    }
    return all;
}

/// The stretches of numbers in a row.
std::size_t stretches(const Numbers& numbers) {
    std::size_t count = 0;
    for (const std::uint64_t n : numbers)
        count += n == 0 || !numbers.contains(n - 1) ? 1 : 0;
    return count;
}

TEST_CASE("a set of ranges is the set of their numbers, and as few ranges as can be", "[util]") {
    std::mt19937 random(7);  // NOLINT(cert-msc*): the same numbers in every run
    for (int round = 0; round < 200; ++round) {
        RangeSet set;
        Numbers numbers;
        for (int i = 0; i < 12; ++i) {
            const std::uint64_t first = random() % 60, end = first + random() % 9;
            set.insert({first, end});
            numbers.merge(numbers_of({{first, end}}));
            REQUIRE(set.count() == numbers.size());
            REQUIRE(set.ranges() == stretches(numbers));

            const std::uint64_t from = random() % 70, to = from + random() % 20;
            Numbers expected;
            for (std::uint64_t n = from; n < to; ++n) {
                if (!numbers.contains(n)) expected.insert(n);
            }
            const auto gaps = set.missing({from, to});
            REQUIRE(numbers_of(gaps) == expected);
            const std::size_t some = std::min<std::size_t>(gaps.size(), 2);
            REQUIRE(set.missing({from, to}, 2).size() == some);
            REQUIRE(set.missing({from, to}, 0).empty());
            if (from == to) continue;
            RangeSet more = set;
            more.insert({from, to});
            REQUIRE(set.touches({from, to}) == (more.ranges() <= set.ranges()));
        }
    }
}

}  // namespace
}  // namespace shared_tensor
