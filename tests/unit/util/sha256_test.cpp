#include "util/sha256.hpp"

#include <catch2/catch_test_macros.hpp>
#include <string>
#include <string_view>

using namespace shared_tensor;

namespace {

std::string hex(std::string_view text) {
    std::string digits;
    for (const std::byte byte : sha256_of(std::as_bytes(std::span(text)))) {
        constexpr std::string_view kDigits = "0123456789abcdef";
        digits += kDigits[std::to_integer<std::size_t>(byte >> 4)];
        digits += kDigits[std::to_integer<std::size_t>(byte & std::byte{15})];
    }
    return digits;
}

}  // namespace

TEST_CASE("the digests are those of FIPS 180-2", "[util]") {
    CHECK(hex("") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    CHECK(hex("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}
