#include "protocol/codec/frame.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

using namespace shared_tensor::codec;

namespace {

std::span<const std::byte> bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

std::string with_prefix(std::uint64_t json_size, const std::string& rest) {
    std::string text(sizeof json_size, '\0');
    std::memcpy(text.data(), &json_size, sizeof json_size);
    return text + rest;
}

}  // namespace

TEST_CASE("a frame's head is the size of the JSON, little endian, and the JSON padded with spaces to 64",
          "[codec][frame]") {
    const std::string head = frame_head("{}");
    REQUIRE(head.size() == 64);
    CHECK(head.substr(0, 8) == std::string("\x38\0\0\0\0\0\0\0", 8));
    CHECK(head.substr(8) == "{}" + std::string(54, ' '));
}

TEST_CASE("every head is a multiple of 64 and splits into its JSON and padding", "[codec][frame]") {
    for (std::size_t size = 0; size < 200; ++size) {
        const std::string json(size, 'x');
        const std::string head = frame_head(json);
        CHECK(head.size() % 64 == 0);
        CHECK(head.size() < 8 + size + 64);
        for (const std::string tensors : {"tensors", ""}) {
            const std::string whole = head + tensors;
            const auto frame = split_frame(bytes_of(whole));
            REQUIRE(frame);
            CHECK(frame->json.substr(0, size) == json);
            CHECK(frame->json.find_first_not_of(' ', size) == std::string::npos);
            CHECK(std::ranges::equal(frame->tensors, bytes_of(tensors)));
        }
    }
}

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

TEST_CASE("tensors stand at multiples of 64", "[codec][frame]") {
    for (const auto& [size, aligned] : {std::pair(0, 0), {1, 64}, {64, 64}, {65, 128}})
        CHECK(frame_aligned(static_cast<std::size_t>(size)) == static_cast<std::size_t>(aligned));
}
