#include "base/bytes/ids.hpp"

#include <array>
#include <catch2/catch_test_macros.hpp>
#include <set>
#include <string>

using namespace shared_tensor;

TEST_CASE("random_hex gives two lower-case digits a byte", "[util][ids]") {
    for (const std::size_t bytes : {0U, 1U, 16U, 1000U}) {
        const auto text = random_hex(bytes);
        CHECK(text.size() == 2 * bytes);
        CHECK(text.find_first_not_of("0123456789abcdef") == std::string::npos);
    }
}

TEST_CASE("every digit comes up", "[util][ids]") {
    const auto text = random_hex(1000);
    CHECK(std::set<char>(text.begin(), text.end()).size() == 16);
}

TEST_CASE("random ids carry their prefix and 128 bits, and do not repeat", "[util][ids]") {
    std::set<std::string> seen;
    for (int i = 0; i < 10'000; ++i)
        seen.insert(random_id("l-"));
    CHECK(seen.size() == 10'000);
    CHECK(seen.begin()->starts_with("l-"));
    CHECK(seen.begin()->size() == 34);
}

TEST_CASE("ids whose bits are fetched together do not repeat either", "[util][ids]") {
    RandomIds ids("l-"), others("l-");
    std::set<std::string> seen;
    for (int i = 0; i < 1000; ++i) {
        seen.insert(ids.next());
        seen.insert(others.next());
    }
    CHECK(seen.size() == 2000);
    for (const std::string& id : seen)
        CHECK((id.starts_with("l-") && id.size() == 34 && id.find_first_not_of("0123456789abcdef", 2) == id.npos));
}

TEST_CASE("comparison in constant time says what == says", "[util][ids]") {
    for (const std::string_view a : {"", "a", "b", "secret", "secreT", "secre", "secretsecret"}) {
        for (const std::string_view b : {"", "a", "b", "secret", "secreT", "secre", "secretsecret"}) {
            INFO('"' << a << "\" and \"" << b << '"');
            CHECK(equal_in_constant_time(a, b) == (a == b));
        }
    }
    using namespace std::string_view_literals;
    CHECK_FALSE(equal_in_constant_time("a"sv, "a\0"sv));
    CHECK_FALSE(equal_in_constant_time("\0"sv, ""sv));
}

namespace {

constexpr std::array kBytes{std::byte{0x01}, std::byte{0x23}, std::byte{0x45}, std::byte{0x67},
                            std::byte{0x89}, std::byte{0xab}, std::byte{0xcd}, std::byte{0xef},
                            std::byte{0xfe}, std::byte{0xdc}, std::byte{0xba}, std::byte{0x98},
                            std::byte{0x76}, std::byte{0x54}, std::byte{0x32}, std::byte{0x10}};

}  // namespace

TEST_CASE("Bytes are two lower-case digits each, the upper half first", "[util]") {
    CHECK(hex({}).empty());
    CHECK(hex(kBytes) == "0123456789abcdeffedcba9876543210");
    std::string text = "a-";
    append_hex(std::span(kBytes).first(2), text);
    CHECK(text == "a-0123");
}

TEST_CASE("A UUID has its digits in groups", "[util]") {
    CHECK(uuid_text(kBytes) == "01234567-89ab-cdef-fedc-ba9876543210");
}
