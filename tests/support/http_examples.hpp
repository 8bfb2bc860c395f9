#pragma once

#include <string>
#include <string_view>
#include <vector>

// Bytes that a peer may send over HTTP. The same tables test the parser and seed the fuzzer.

namespace shared_tensor::test {

struct HttpHeadExample {
    std::string name;
    std::string head;
    int status;  ///< of the rejection; 0: the head is accepted
};

inline std::string http_head_with(std::string_view fields) {
    return "POST /p HTTP/1.1\r\nHost: h\r\n" + std::string(fields) + "\r\n";
}

/// Heads that two parsers could read differently, with plain ones for comparison.
inline std::vector<HttpHeadExample> http_head_examples() {
    using namespace std::string_literals;
    return {
        {"plain", http_head_with(""), 0},
        {"length", http_head_with("Content-Length: 5\r\n"), 0},
        {"length and coding", http_head_with("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n"), 400},
        {"zero length and coding", http_head_with("Content-Length: 0\r\nTransfer-Encoding: chunked\r\n"), 400},
        {"two lengths", http_head_with("Content-Length: 5\r\nContent-Length: 6\r\n"), 400},
        {"equal lengths", http_head_with("Content-Length: 5\r\nContent-Length: 5\r\n"), 400},
        {"length list", http_head_with("Content-Length: 5, 5\r\n"), 400},
        {"signed length", http_head_with("Content-Length: +5\r\n"), 400},
        {"negative length", http_head_with("Content-Length: -5\r\n"), 400},
        {"hexadecimal length", http_head_with("Content-Length: 0x5\r\n"), 400},
        {"empty length", http_head_with("Content-Length: \r\n"), 400},
        {"length beyond 64 bits", http_head_with("Content-Length: 18446744073709551616\r\n"), 400},
        {"chunked", http_head_with("Transfer-Encoding: chunked\r\n"), 0},
        {"Chunked", http_head_with("transfer-encoding: Chunked\r\n"), 0},
        {"unknown coding", http_head_with("Transfer-Encoding: gzip\r\n"), 400},
        {"coding before chunked", http_head_with("Transfer-Encoding: gzip, chunked\r\n"), 400},
        {"coding after chunked", http_head_with("Transfer-Encoding: chunked, gzip\r\n"), 400},
        {"identity", http_head_with("Transfer-Encoding: identity\r\n"), 400},
        {"almost chunked", http_head_with("Transfer-Encoding: xchunked\r\n"), 400},
        {"two codings", http_head_with("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n"), 400},
        {"vertical tab before coding", http_head_with("Transfer-Encoding: \vchunked\r\n"), 400},
        {"coding in HTTP/1.0", "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", 400},
        {"blank before colon", http_head_with("Content-Length : 5\r\n"), 400},
        {"tab before colon", http_head_with("Content-Length\t: 5\r\n"), 400},
        {"continued line", http_head_with("X: a\r\n b\r\n"), 400},
        {"continued first line", "POST /p HTTP/1.1\r\n Host: h\r\n\r\n", 400},
        {"no colon", http_head_with("Nonsense\r\n"), 400},
        {"empty name", http_head_with(": x\r\n"), 400},
        {"NUL in a value", http_head_with("X: a\0b\r\n"s), 400},
        {"NUL in a name", http_head_with("X\0Y: b\r\n"s), 400},
        {"bare CR in a value", http_head_with("X: a\rb\r\n"), 400},
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
        {"unknown expectation", http_head_with("Expect: a-miracle\r\n"), 417},
        {"expectation", http_head_with("Expect: 100-continue\r\n"), 0},
    };
}

/// Requests with bodies, one after another on one connection.
inline std::vector<std::string> http_stream_examples() {
    const std::string sized = http_head_with("Content-Length: 4\r\n") + "abcd";
    const std::string chunked = http_head_with("Transfer-Encoding: chunked\r\n") + "3;x=\"y\"\r\nabc\r\n";
    return {sized,
            sized + sized + "GET /q HTTP/1.1\r\nHost: h\r\n\r\n",
            chunked + "0\r\n\r\n" + sized,
            chunked + "A\r\n0123456789\r\n00\r\nX-Trailer: z\r\n\r\n" + chunked + "0\r\n\r\n",
            chunked + "ffffffffffffffff\r\nabc",
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
            "HTTP/1.0 404 Not Found\r\nConnection: keep-alive\r\n\r\n"};
}

}  // namespace shared_tensor::test
