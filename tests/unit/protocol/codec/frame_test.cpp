#include "protocol/codec/frame.hpp"

#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>

using namespace shared_tensor::codec;

namespace {

std::span<const std::byte> bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

std::string with_prefix(std::uint64_t json_size, const std::string& rest) {
    std::string text(sizeof json_size, '\0');
    std::memcpy(text.data(), &json_size, sizeof json_size);
    return text + rest;
}

}  // namespace

TEST_CASE("a frame that is cut, too short for its prefix, or out of step is rejected", "[codec][frame]") {
    const struct {
        const char* what;
        std::string bytes;
    } table[] = {
        {"nothing", ""},
        {"half a prefix", "1234567"},
        {"a prefix without its JSON", with_prefix(56, "")},
        {"one byte of JSON missing", with_prefix(56, std::string(55, ' '))},
        {"a size that is no multiple of 64 with the prefix", with_prefix(55, std::string(120, ' '))},
        {"a size near the end of the range",
         with_prefix(std::numeric_limits<std::uint64_t>::max() - 7, std::string(56, ' '))},
        {"the greatest size", with_prefix(std::numeric_limits<std::uint64_t>::max(), std::string(56, ' '))},
    };
    for (const auto& row : table) {
        INFO(row.what);
        CHECK_FALSE(split_frame(bytes_of(row.bytes)));
    }
}
