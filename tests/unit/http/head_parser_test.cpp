#include "http/head_parser.hpp"

#include <catch2/catch_test_macros.hpp>
#include <string>

namespace shared_tensor::http {
namespace {

/// The status of the refusal, 0 when the head is accepted.
int refusal_of(std::string_view head) {
    HeadScan scan;
    const auto scanned = scan.advance(head, {});
    if (const auto* fault = std::get_if<HeadFault>(&scanned)) return fault->status;
    if (std::holds_alternative<std::monostate>(scanned)) return -1;
    const auto parsed = parse_request_head(head.substr(0, std::get<std::size_t>(scanned)));
    const auto* fault = std::get_if<HeadFault>(&parsed);
    return fault != nullptr ? fault->status : 0;
}

RequestFrame accepted(std::string_view head) {
    auto parsed = parse_request_head(head);
    REQUIRE(std::holds_alternative<RequestFrame>(parsed));
    return std::get<RequestFrame>(std::move(parsed));
}

struct Case {
    std::string name;
    std::string head;
    int status;
};

std::string with(std::string_view fields) { return "POST /p HTTP/1.1\r\nHost: h\r\n" + std::string(fields) + "\r\n"; }

TEST_CASE("a head that two readers could understand differently is refused", "[http]") {
    using namespace std::string_literals;
    const std::vector<Case> cases = {
        {"plain", with(""), 0},
        {"length", with("Content-Length: 5\r\n"), 0},
        {"length and coding", with("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n"), 400},
        {"zero length and coding", with("Content-Length: 0\r\nTransfer-Encoding: chunked\r\n"), 400},
        {"two lengths", with("Content-Length: 5\r\nContent-Length: 6\r\n"), 400},
        {"equal lengths", with("Content-Length: 5\r\nContent-Length: 5\r\n"), 400},
        {"length list", with("Content-Length: 5, 5\r\n"), 400},
        {"signed length", with("Content-Length: +5\r\n"), 400},
        {"negative length", with("Content-Length: -5\r\n"), 400},
        {"hexadecimal length", with("Content-Length: 0x5\r\n"), 400},
        {"empty length", with("Content-Length: \r\n"), 400},
        {"length beyond 64 bits", with("Content-Length: 18446744073709551616\r\n"), 400},
        {"chunked", with("Transfer-Encoding: chunked\r\n"), 0},
        {"Chunked", with("transfer-encoding: Chunked\r\n"), 0},
        {"unknown coding", with("Transfer-Encoding: gzip\r\n"), 400},
        {"coding before chunked", with("Transfer-Encoding: gzip, chunked\r\n"), 400},
        {"coding after chunked", with("Transfer-Encoding: chunked, gzip\r\n"), 400},
        {"identity", with("Transfer-Encoding: identity\r\n"), 400},
        {"almost chunked", with("Transfer-Encoding: xchunked\r\n"), 400},
        {"two codings", with("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n"), 400},
        {"vertical tab before coding", with("Transfer-Encoding: \vchunked\r\n"), 400},
        {"coding in HTTP/1.0", "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", 400},
        {"blank before colon", with("Content-Length : 5\r\n"), 400},
        {"tab before colon", with("Content-Length\t: 5\r\n"), 400},
        {"continued line", with("X: a\r\n b\r\n"), 400},
        {"continued first line", "POST /p HTTP/1.1\r\n Host: h\r\n\r\n", 400},
        {"no colon", with("Nonsense\r\n"), 400},
        {"empty name", with(": x\r\n"), 400},
        {"NUL in a value", with("X: a\0b\r\n"s), 400},
        {"NUL in a name", with("X\0Y: b\r\n"s), 400},
        {"bare CR in a value", with("X: a\rb\r\n"), 400},
        {"bare LF line", "GET / HTTP/1.1\nHost: h\n\n", 400},
        {"one bare LF", "GET / HTTP/1.1\r\nHost: h\nX: y\r\n\r\n", 400},
        {"two hosts", "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400},
        {"no host", "GET / HTTP/1.1\r\n\r\n", 400},
        {"no host in 1.0", "GET / HTTP/1.0\r\n\r\n", 0},
        {"other host in the line", "GET http://b/ HTTP/1.1\r\nHost: a\r\n\r\n", 400},
        {"same host in the line", "GET http://a/x HTTP/1.1\r\nHost: a\r\n\r\n", 0},
        {"no slash", "GET x HTTP/1.1\r\nHost: a\r\n\r\n", 400},
        {"two blanks", "GET  / HTTP/1.1\r\nHost: a\r\n\r\n", 400},
        {"blank in the path", "GET /a b HTTP/1.1\r\nHost: a\r\n\r\n", 400},
        {"tab in the line", "GET\t/ HTTP/1.1\r\nHost: a\r\n\r\n", 400},
        {"bytes above ASCII in the path", "GET /\xc3\xa9 HTTP/1.1\r\nHost: a\r\n\r\n", 400},
        {"fragment", "GET /a#b HTTP/1.1\r\nHost: a\r\n\r\n", 400},
        {"bad percent", "GET /%4 HTTP/1.1\r\nHost: a\r\n\r\n", 400},
        {"encoded NUL", "GET /a%00b HTTP/1.1\r\nHost: a\r\n\r\n", 400},
        {"no version", "GET /\r\nHost: a\r\n\r\n", 400},
        {"version 2", "PRI * HTTP/2.0\r\n\r\n", 505},
        {"version 1.2", "GET / HTTP/1.2\r\nHost: a\r\n\r\n", 505},
        {"lower-case version", "GET / http/1.1\r\nHost: a\r\n\r\n", 400},
        {"odd method", "GE(T / HTTP/1.1\r\nHost: a\r\n\r\n", 400},
        {"unknown expectation", with("Expect: a-miracle\r\n"), 417},
        {"expectation", with("Expect: 100-continue\r\n"), 0},
    };
    for (const auto& [name, head, status] : cases) {
        INFO(name);
        CHECK(refusal_of(head) == status);
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
        const auto* fault = std::get_if<HeadFault>(&result);
        return fault != nullptr ? fault->status : 0;
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
}  // namespace shared_tensor::http
