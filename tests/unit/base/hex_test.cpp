#include "base/bytes/ids.hpp"

#include <array>
#include <catch2/catch_test_macros.hpp>
#include <string>

using namespace shared_tensor;

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
