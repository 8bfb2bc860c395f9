#include "net/message/head_parser.hpp"

#include <catch2/catch_test_macros.hpp>
#include <string>

#include "support/http_examples.hpp"

namespace shared_tensor::net {
namespace {

/// The status of the rejection, 0 when the head is accepted.
int rejection_of(std::string_view head) {
    HeadScan scan;
    const auto scanned = scan.advance(head, {});
    if (const auto* rejection = std::get_if<HeadRejection>(&scanned)) return rejection->status;
    if (std::holds_alternative<std::monostate>(scanned)) return -1;
    const auto parsed = parse_request_head(head.substr(0, std::get<std::size_t>(scanned)));
    const auto* rejection = std::get_if<HeadRejection>(&parsed);
    return rejection != nullptr ? rejection->status : 0;
}

RequestFrame accepted(std::string_view head) {
    auto parsed = parse_request_head(head);
    REQUIRE(std::holds_alternative<RequestFrame>(parsed));
    return std::get<RequestFrame>(std::move(parsed));
}

TEST_CASE("a head that two readers could understand differently is rejected", "[http]") {
    for (const auto& [name, head, status] : test::http_head_examples()) {
        INFO(name);
        CHECK(rejection_of(head) == status);
    }
}

TEST_CASE("a head is understood the same in pieces of every size", "[http]") {
    const std::string head = "POST /a%20b?c=d HTTP/1.1\r\nHost: h\r\nContent-Length: 12\r\nX:  y \r\n\r\nbody";
    const std::size_t end = head.size() - 4;
    for (std::size_t piece = 1; piece <= head.size(); ++piece) {
        HeadScan scan;
        for (std::size_t there = piece;; there += piece) {
            const auto result = scan.advance(std::string_view(head).substr(0, there), {});
            if (there < end) {
                REQUIRE(std::holds_alternative<std::monostate>(result));
                continue;
            }
            REQUIRE(std::get<std::size_t>(result) == end);
            break;
        }
    }
}

TEST_CASE("a head's parts are taken apart", "[http]") {
    const auto frame =
        accepted("POST /a%20b?c=d&e HTTP/1.1\r\nHost: h:1\r\nX-Y:  two words \r\nContent-Length: 12\r\n\r\n");
    CHECK(frame.head.method == "POST");
    CHECK(frame.head.path == "/a b");
    CHECK(frame.head.query == "c=d&e");
    CHECK(frame.head.headers.find("x-y") == "two words");
    CHECK(frame.framing.length == 12);
    CHECK_FALSE(frame.framing.chunked);
    CHECK(frame.keep_alive);
}

TEST_CASE("a connection is kept as the version and the Connection field say", "[http]") {
    CHECK(accepted("GET / HTTP/1.1\r\nHost: h\r\n\r\n").keep_alive);
    CHECK_FALSE(accepted("GET / HTTP/1.1\r\nHost: h\r\nConnection: TE, Close\r\n\r\n").keep_alive);
    CHECK_FALSE(accepted("GET / HTTP/1.0\r\nHost: h\r\n\r\n").keep_alive);
    CHECK(accepted("GET / HTTP/1.0\r\nHost: h\r\nConnection: Keep-Alive\r\n\r\n").keep_alive);
    CHECK_FALSE(
        accepted("GET / HTTP/1.1\r\nHost: h\r\nConnection: keep-alive\r\nConnection: close\r\n\r\n").keep_alive);
}

TEST_CASE("the limits of a head are exact", "[http]") {
    const HeadLimits limits{.line_bytes = 32, .fields = 3, .head_bytes = 90};
    const auto status = [&](const std::string& head) {
        HeadScan scan;
        const auto result = scan.advance(head, limits);
        const auto* rejection = std::get_if<HeadRejection>(&result);
        return rejection != nullptr ? rejection->status : 0;
    };
    const std::string line = "GET /2345678901234567 HTTP/1.1";  // 30 bytes
    CHECK(status(line + "xx\r\n\r\n") == 0);
    CHECK(status(line + "xxx\r\n\r\n") == 414);
    CHECK(status(line + "xxxxxx") == 414);  // without waiting for its end
    const std::string first = "GET / HTTP/1.1\r\n";
    CHECK(status(first + "X: " + std::string(29, 'x') + "\r\n\r\n") == 0);
    CHECK(status(first + "X: " + std::string(30, 'x') + "\r\n\r\n") == 431);
    CHECK(status(first + "X: " + std::string(33, 'x')) == 431);
    CHECK(status(first + "A: 1\r\nB: 2\r\nC: 3\r\n\r\n") == 0);
    CHECK(status(first + "A: 1\r\nB: 2\r\nC: 3\r\nD: 4\r\n\r\n") == 431);
    const std::string wide = "X: " + std::string(21, 'x') + "\r\n";                       // 26 bytes
    CHECK(status(first + wide + wide + "Y: " + std::string(15, 'y') + "\r\n\r\n") == 0);  // 90 bytes
    CHECK(status(first + wide + wide + "Y: " + std::string(16, 'y') + "\r\n\r\n") == 431);
}

TEST_CASE("an answer's head is read as strictly", "[http]") {
    const auto status = [](std::string_view head) {
        const auto parsed = parse_response_head(head);
        const auto* frame = std::get_if<ResponseFrame>(&parsed);
        return frame != nullptr ? frame->status : 0;
    };
    CHECK(status("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n") == 200);
    CHECK(status("HTTP/1.1 204\r\n\r\n") == 204);
    CHECK(status("HTTP/1.0 404 Not Found\r\n\r\n") == 404);
    CHECK(status("HTTP/2 200\r\n\r\n") == 0);
    CHECK(status("HTTP/1.1 20\r\n\r\n") == 0);
    CHECK(status("HTTP/1.1 2000 OK\r\n\r\n") == 0);
    CHECK(status("HTTP/1.1 099 OK\r\n\r\n") == 0);
    CHECK(status("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n") == 0);
    CHECK(status("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n") == 0);
    CHECK(status("SSH-2.0-OpenSSH\r\n\r\n") == 0);
}

}  // namespace
}  // namespace shared_tensor::net
