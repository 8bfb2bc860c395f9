#include "base/bytes/ids.hpp"

#include <array>
#include <catch2/catch_test_macros.hpp>
#include <set>
#include <string>

using namespace shared_tensor;

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
