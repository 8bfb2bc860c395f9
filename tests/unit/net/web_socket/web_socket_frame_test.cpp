#include "net/web_socket/web_socket_inbox.hpp"

#include <catch2/catch_test_macros.hpp>

#include "base/bytes/ids.hpp"
#include "web_socket_peer.hpp"

namespace shared_tensor::test {
namespace {

using net::CloseCode;
using net::FrameHead;
using net::FrameMask;
using net::FrameType;

constexpr FrameMask kMask{std::byte{0x37}, std::byte{0xfa}, std::byte{0x21}, std::byte{0x3d}};

TEST_CASE("heads of every length are written in their shortest form, and read once they are whole", "[http]") {
    const std::pair<FrameHead, const char*> table[] = {
        {{FrameType::text, true, 5, std::nullopt}, "8105"},  // to 65536: RFC 6455's own examples (section 5.7)
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
        {{FrameType::binary, true, 126, kMask}, "82fe007e37fa213d"},
        {{FrameType::binary, true, 65535, std::nullopt}, "827effff"},
        {{FrameType::binary, true, 65536, kMask}, "82ff000000000001000037fa213d"},
        {{FrameType::binary, true, 0x7fff'ffff'ffff'ffff, std::nullopt}, "827f7fffffffffffffff"},
    };
    for (const auto& [head, bytes] : table) {
        INFO(bytes);
        std::string written;
        net::append_head(head, written);
        CHECK(hex(std::as_bytes(std::span(written))) == bytes);
        for (std::size_t size = 0; size < written.size(); ++size)
            CHECK(std::holds_alternative<std::monostate>(net::scan_frame(written.substr(0, size))));
        const auto scanned = net::scan_frame(written + "payload");
        const auto* found = std::get_if<net::ScannedFrame>(&scanned);
        REQUIRE(found != nullptr);
        CHECK(found->bytes == written.size());
        CHECK(found->head.type == head.type);
        CHECK(found->head.last == head.last);
        CHECK(found->head.size == head.size);
        CHECK(found->head.mask == head.mask);
    }
}

TEST_CASE("a close payload is its code and its reason, which is cut, but not in the middle of a letter", "[http]") {
    CHECK(net::close_payload(CloseCode::normal, "bye") == std::string("\x03\xe8") + "bye");
    CHECK(net::close_payload(CloseCode::normal, std::string(1000, 'x')) == "\x03\xe8" + std::string(123, 'x'));
    const std::string euro = "\xe2\x82\xac";
    for (std::size_t before = 118; before <= 124; ++before) {
        INFO(before);
        const bool fits = before + euro.size() <= 123;
        const std::string whole = std::string(before, 'x') + (fits ? euro + "more" : "");
        const auto payload = net::close_payload(CloseCode::normal, std::string(before, 'x') + euro + "more");
        CHECK(payload == "\x03\xe8" + whole.substr(0, 123));
    }
}

}  // namespace
}  // namespace shared_tensor::test
