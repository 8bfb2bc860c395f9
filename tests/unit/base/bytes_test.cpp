#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <bit>
#include <catch2/catch_test_macros.hpp>
#include <random>
#include <set>
#include <shared_tensor/bytes.hpp>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/bytes/digest.hpp"
#include "base/bytes/ids.hpp"
#include "base/bytes/latency_histogram.hpp"
#include "base/bytes/range_set.hpp"

using namespace shared_tensor;
using std::chrono::nanoseconds;

namespace {

constexpr std::string_view kDigits = "0123456789abcdef";

}  // namespace

TEST_CASE("random ids carry their prefix and 128 bits of every digit, and do not repeat", "[util][ids]") {
    RandomIds ids("l-"), others("l-");  // their bits are fetched together
    std::set<std::string> seen;
    std::set<char> digits;
    for (int i = 0; i < 1000; ++i) {
        for (const std::string& id : {random_id("l-"), ids.next(), others.next(), "l-" + random_hex(16)}) {
            REQUIRE((id.starts_with("l-") && id.size() == 34));
            digits.insert(id.begin() + 2, id.end());
            seen.insert(id);
        }
    }
    CHECK(seen.size() == 4000);
    CHECK(digits == std::set<char>(kDigits.begin(), kDigits.end()));
    CHECK(random_hex(0).empty());
}

TEST_CASE("comparison in constant time says what == says", "[util][ids]") {
    using namespace std::string_view_literals;
    const auto texts = {""sv, "\0"sv, "a"sv, "a\0"sv, "b"sv, "secret"sv, "secreT"sv, "secre"sv, "secretsecret"sv};
    for (const std::string_view a : texts) {
        for (const std::string_view b : texts) {
            INFO('"' << a << "\" and \"" << b << '"');
            CHECK(equal_in_constant_time(a, b) == (a == b));
        }
    }
}

TEST_CASE("Bytes are two lower-case digits each, the upper half first; those of a UUID stand in groups", "[util]") {
    std::array<std::byte, 16> bytes{};
    for (std::size_t i = 0; i < 8; ++i) {
        bytes[i] = static_cast<std::byte>(0x22 * i + 1);
        bytes[15 - i] = static_cast<std::byte>(0x22 * i + 0x10);
    }
    CHECK(hex(bytes) == "0123456789abcdeffedcba9876543210");
    CHECK(uuid_text(bytes) == "01234567-89ab-cdef-fedc-ba9876543210");
    std::string text = "a-";
    append_hex(std::span(bytes).first(2), text);
    CHECK(text == "a-0123");
}

namespace shared_tensor {
namespace {

std::span<const std::byte> bytes(std::string_view text) { return std::as_bytes(std::span(text)); }

TEST_CASE("digests are XXH3 with 128 bits in big endian, and SHA-256 as in FIPS 180-2", "[util]") {
    // As another implementation (the Python package xxhash) has them.
    CHECK(encode_base64(Digest::of({})) == "maoG0wFHmNhgAcMkRo1Jfw==");
    CHECK(encode_base64(Digest::of(bytes("abc"))) == "BrBatnM6YYV4r1+UiS85UA==");
    CHECK(hex(Sha256::of(bytes("abc"))) == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST_CASE("a digest is the same in whatever pieces the bytes come", "[util]") {
    std::vector<std::byte> all(100'000);
    for (std::size_t i = 0; i < all.size(); ++i)
        all[i] = static_cast<std::byte>(i * 7919 >> 3);
    const auto whole = Digest::of(all);
    for (const std::size_t piece : {1UL, 63UL, 4096UL, 99'999UL}) {
        Digest digest;
        for (std::size_t at = 0; at < all.size(); at += piece)
            digest.update(std::span(all).subspan(at, std::min(piece, all.size() - at)));
        CHECK(digest.value() == whole);
    }
    all[50'000] ^= std::byte{1};
    CHECK(Digest::of(all) != whole);
}

TEST_CASE("a digest is the same on every processor", "[util]") {
    std::vector<std::byte> all(300'008);
    for (std::size_t i = 0; i < all.size(); ++i)
        all[i] = static_cast<std::byte>(i * 2654435761U >> 9);
    for (const std::size_t size : {0, 1, 16, 17, 128, 129, 239, 240, 241, 1023, 1024, 1025, 65'537, 300'000}) {
        for (const std::size_t start : {0, 1, 7}) {
            const auto part = std::span(all).subspan(start, size);
            XXH128_canonical_t expected;  // by code for any processor
            XXH128_canonicalFromHash(&expected, XXH3_128bits(part.data(), part.size()));
            CHECK(Digest::of(part) == std::bit_cast<Digest::Value>(expected));
        }
    }
}

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
