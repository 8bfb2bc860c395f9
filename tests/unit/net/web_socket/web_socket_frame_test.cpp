#include "net/web_socket/web_socket_inbox.hpp"

#include <catch2/catch_test_macros.hpp>
#include <vector>

#include "web_socket_peer.hpp"

namespace shared_tensor::test {
namespace {

using net::CloseCode;
using net::FrameHead;
using net::FrameMask;
using net::FrameType;
using net::ScannedFrame;

constexpr FrameMask kMask{std::byte{0x37}, std::byte{0xfa}, std::byte{0x21}, std::byte{0x3d}};

std::string hex(std::string_view bytes) {
    static constexpr std::string_view kDigits = "0123456789abcdef";
    std::string text;
    for (const char byte : bytes)
        text.append({kDigits[static_cast<unsigned char>(byte) >> 4], kDigits[static_cast<unsigned char>(byte) & 15]});
    return text;
}

std::string rendered(const FrameHead& head) {
    std::string bytes;
    net::append_head(head, bytes);
    return bytes;
}

struct Rendered {
    FrameHead head;
    const char* bytes;
};

/// The first ones are RFC 6455's own examples (section 5.7).
const std::vector<Rendered> kHeads = {
    {{FrameType::text, true, 5, std::nullopt}, "8105"},
    {{FrameType::text, true, 5, kMask}, "818537fa213d"},
    {{FrameType::text, false, 3, std::nullopt}, "0103"},
    {{FrameType::continuation, true, 2, std::nullopt}, "8002"},
    {{FrameType::ping, true, 5, std::nullopt}, "8905"},
    {{FrameType::pong, true, 5, kMask}, "8a8537fa213d"},
    {{FrameType::binary, true, 256, std::nullopt}, "827e0100"},
    {{FrameType::binary, true, 65536, std::nullopt}, "827f0000000000010000"},
    {{FrameType::binary, true, 0, std::nullopt}, "8200"},
    {{FrameType::close, true, 0, kMask}, "888037fa213d"},
    {{FrameType::binary, true, 125, std::nullopt}, "827d"},
    {{FrameType::binary, true, 126, std::nullopt}, "827e007e"},
    {{FrameType::binary, true, 126, kMask}, "82fe007e37fa213d"},
    {{FrameType::binary, true, 65535, std::nullopt}, "827effff"},
    {{FrameType::binary, true, 65536, kMask}, "82ff000000000001000037fa213d"},
    {{FrameType::binary, true, 0x7fff'ffff'ffff'ffff, std::nullopt}, "827f7fffffffffffffff"},
};

TEST_CASE("heads of every length are written in their shortest form", "[http]") {
    for (const auto& [head, bytes] : kHeads)
        CHECK(hex(rendered(head)) == bytes);
}

TEST_CASE("a head that was written is read as the same", "[http]") {
    for (const auto& [head, bytes] : kHeads) {
        INFO(bytes);
        const auto scanned = net::scan_frame(rendered(head) + "payload");
        const auto* found = std::get_if<ScannedFrame>(&scanned);
        REQUIRE(found != nullptr);
        CHECK(found->bytes == rendered(head).size());
        CHECK(found->head.type == head.type);
        CHECK(found->head.last == head.last);
        CHECK(found->head.size == head.size);
        CHECK(found->head.mask == head.mask);
    }
}

TEST_CASE("a head that is not whole is neither a frame nor a fault", "[http]") {
    for (const auto& [head, bytes] : kHeads) {
        INFO(bytes);
        const std::string whole = rendered(head);
        for (std::size_t size = 0; size < whole.size(); ++size)
            CHECK(std::holds_alternative<std::monostate>(net::scan_frame(whole.substr(0, size))));
    }
}

TEST_CASE("what is no frame is a fault", "[http]") {
    struct Case {
        const char* name;
        std::string bytes;
    };
    std::vector<Case> cases = {
        {"first reserved bit", raw_head(0xc2, 1)},
        {"second reserved bit", raw_head(0xa2, 1)},
        {"third reserved bit", raw_head(0x92, 1)},
        {"fragmented ping", raw_head(0x09, 1)},
        {"fragmented close", raw_head(0x08, 1)},
        {"ping of 126 bytes", raw_head(0x89, 126)},
        {"pong of 65536 bytes", raw_head(0x8a, 65536)},
        {"close of 126 bytes", raw_head(0x88, 126)},
        {"negative length", raw_head(0x82, std::uint64_t{1} << 63)},
        {"length of all ones", raw_head(0x82, ~std::uint64_t{0}, false)},
    };
    for (const int opcode : {3, 4, 5, 6, 7, 11, 12, 13, 14, 15})
        cases.push_back({"unknown opcode", raw_head(0x80 + opcode, 1)});
    for (const auto& [name, bytes] : cases) {
        INFO(name << ' ' << hex(bytes));
        const auto scanned = net::scan_frame(bytes);
        REQUIRE(std::holds_alternative<std::string_view>(scanned));
        CHECK_FALSE(std::get<std::string_view>(scanned).empty());
    }
}

TEST_CASE("a control frame that is too long is a fault before its length is known", "[http]") {
    CHECK(std::holds_alternative<std::string_view>(net::scan_frame("\x89\xfe")));
}

TEST_CASE("a mask changes every byte with its own byte of four", "[http]") {
    for (const std::size_t size : {0, 1, 3, 4, 5, 31, 32, 33, 63, 64, 65, 100, 1000}) {
        for (const std::uint64_t offset : {0, 1, 2, 3, 4, 5, 6, 7, 31, 32, 65537}) {
            INFO(size << " bytes from " << offset);
            const std::string plain = random_bytes(size);
            std::string masked = plain, expected = plain;
            for (std::size_t i = 0; i < size; ++i)
                expected[i] = static_cast<char>(plain[i] ^ static_cast<char>(kMask[(offset + i) % 4]));
            net::apply_mask(std::as_writable_bytes(std::span(masked)), kMask, offset);
            CHECK(masked == expected);
            net::apply_mask(std::as_writable_bytes(std::span(masked)), kMask, offset);
            CHECK(masked == plain);
        }
    }
}

TEST_CASE("a payload that is masked in pieces is the same as one masked at once", "[http]") {
    const std::string plain = random_bytes(200);
    std::string whole = plain;
    net::apply_mask(std::as_writable_bytes(std::span(whole)), kMask, 0);
    for (std::size_t cut = 0; cut <= plain.size(); ++cut) {
        std::string pieces = plain;
        const auto bytes = std::as_writable_bytes(std::span(pieces));
        net::apply_mask(bytes.first(cut), kMask, 0);
        net::apply_mask(bytes.subspan(cut), kMask, cut);
        CHECK(pieces == whole);
    }
}

TEST_CASE("a close payload is its code in two bytes and its reason", "[http]") {
    CHECK(net::close_payload(CloseCode::normal, "bye") ==
          "\x03\xe8"
          "bye");
    CHECK(net::close_payload(CloseCode::too_big, "") == "\x03\xf1");
}

TEST_CASE("a close payload never exceeds what a control frame may hold", "[http]") {
    CHECK(net::close_payload(CloseCode::normal, std::string(1000, 'x')) == "\x03\xe8" + std::string(123, 'x'));
}

TEST_CASE("a close payload's reason is not cut in the middle of a letter", "[http]") {
    const std::string euro = "\xe2\x82\xac";
    for (std::size_t before = 118; before <= 124; ++before) {
        INFO(before);
        const std::string ascii(before, 'x');
        const bool fits = before + euro.size() <= 123;
        const auto payload = net::close_payload(CloseCode::normal, ascii + euro + "more");
        CHECK(payload.substr(2, 121) == (ascii + (fits ? euro + "more" : "")).substr(0, 121));
        CHECK(payload.ends_with(fits ? (euro + "more").substr(0, 123 - before) : "x"));
    }
}

TEST_CASE("a close payload's code is read back", "[http]") {
    for (const int code : {1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 1012, 1013, 1014, 3000, 3999, 4999}) {
        INFO(code);
        const auto payload = net::close_payload(static_cast<CloseCode>(code), "any reason");
        CHECK(net::read_close_payload(payload) == static_cast<CloseCode>(code));
    }
}

TEST_CASE("an empty close payload names no code", "[http]") { CHECK(net::read_close_payload("") == CloseCode::none); }

TEST_CASE("a close payload that must not be sent is none", "[http]") {
    for (const int code : {0, 1, 999, 1004, 1005, 1006, 1015, 1016, 1100, 2000, 2999, 5000, 65535}) {
        INFO(code);
        CHECK_FALSE(net::read_close_payload(net::close_payload(static_cast<CloseCode>(code), "")));
    }
    CHECK_FALSE(net::read_close_payload("\x03"));
}

}  // namespace
}  // namespace shared_tensor::test
