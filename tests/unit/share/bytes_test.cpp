#include <array>
#include <catch2/catch_test_macros.hpp>
#include <random>
#include <shared_tensor/bytes.hpp>
#include <string>

using namespace shared_tensor;

namespace {

std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

std::string text_of(const std::vector<std::byte>& bytes) {
    std::string text;
    for (const std::byte byte : bytes)
        text.push_back(static_cast<char>(byte));
    return text;
}

}  // namespace

TEST_CASE("base64 has the texts of RFC 4648, both ways", "[share][bytes]") {
    const struct {
        std::string_view plain, base64;
    } table[] = {{"", ""},
                 {"f", "Zg=="},
                 {"fo", "Zm8="},
                 {"foo", "Zm9v"},
                 {"foob", "Zm9vYg=="},
                 {"fooba", "Zm9vYmE="},
                 {"foobar", "Zm9vYmFy"},
                 {"\xff\xfe\xfd", "//79"},
                 {"\xfb\xef", "++8="}};
    for (const auto& row : table) {
        INFO(row.base64);
        CHECK(encode_base64(bytes_of(row.plain)) == row.base64);
        const auto decoded = decode_base64(row.base64);
        REQUIRE(decoded);
        CHECK(text_of(*decoded) == row.plain);
        CHECK(decoded_base64_size(row.base64) == row.plain.size());
    }
}

TEST_CASE("random bytes of every length come back", "[share][bytes]") {
    std::mt19937 random(3);
    for (std::size_t size = 0; size < 300; ++size) {
        std::vector<std::byte> bytes(size);
        for (auto& byte : bytes)
            byte = static_cast<std::byte>(random());
        CHECK(decode_base64(encode_base64(bytes)) == bytes);
    }
}

TEST_CASE("what is not canonical base64 is rejected", "[share][bytes]") {
    for (const std::string_view text : {"Z", "Zg", "Zg=", "Zg===", "=", "==", "===", "====", "A===", "Zg==Zg==", "Z=g=",
                                        "Zm 9", "Zm9v\n", "Zm9_", "Zm9-", "Zh==", "Zm9=", "\xc3\xa4\xc3\xa4"}) {
        INFO('"' << text << '"');
        CHECK_FALSE(decode_base64(text));
    }
    using namespace std::string_view_literals;
    CHECK_FALSE(decode_base64("Zm9\0"sv));
}
