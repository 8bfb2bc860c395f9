#pragma once

#include <string>
#include <string_view>
#include <vector>

// Bytes that a peer may send over HTTP. The same tables test the server and seed the fuzzer.

namespace shared_tensor::test {

struct HttpExample {
    std::string name;
    std::string request;
    int status;  ///< of the answer of a server that says every body back
};

/// Requests that two parsers could read differently, with plain ones for comparison. A body that fits to a careless
/// reading stands behind each head.
inline std::vector<HttpExample> http_examples() {
    using namespace std::string_literals;
    const std::string start = "POST /p HTTP/1.1\r\nHost: h\r\n", chunks = start + "Transfer-Encoding: chunked\r\n\r\n";
    const auto sized = [&](const std::string& fields) { return start + fields + "\r\nhello"; };
    const auto coded = [&](const std::string& fields) { return start + fields + "\r\n0\r\n\r\n"; };
    const auto of_host_a = [](const std::string& line) { return line + "\r\nHost: a\r\n\r\n"; };
    return {
        {"length", sized("Content-Length: 5\r\n"), 200},
        {"no length", start + "\r\n", 411},
        {"length and coding", coded("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n"), 400},
        {"zero length and coding", coded("Content-Length: 0\r\nTransfer-Encoding: chunked\r\n"), 400},
        {"two lengths", sized("Content-Length: 5\r\nContent-Length: 6\r\n"), 400},
        {"equal lengths", sized("Content-Length: 5\r\nContent-Length: 5\r\n"), 400},
        {"length list", sized("Content-Length: 5, 5\r\n"), 400},
        {"signed length", sized("Content-Length: +5\r\n"), 400},
        {"negative length", sized("Content-Length: -5\r\n"), 400},
        {"hexadecimal length", sized("Content-Length: 0x5\r\n"), 400},
        {"empty length", sized("Content-Length: \r\n"), 400},
        {"length beyond 64 bits", sized("Content-Length: 18446744073709551621\r\n"), 400},
        {"chunked", coded("Transfer-Encoding: chunked\r\n"), 200},
        {"Chunked", coded("transfer-encoding: Chunked\r\n"), 200},
        {"unknown coding", coded("Transfer-Encoding: gzip\r\n"), 400},
        {"coding before chunked", coded("Transfer-Encoding: gzip, chunked\r\n"), 400},
        {"coding after chunked", coded("Transfer-Encoding: chunked, gzip\r\n"), 400},
        {"identity", coded("Transfer-Encoding: identity\r\n"), 400},
        {"almost chunked", coded("Transfer-Encoding: xchunked\r\n"), 400},
        {"two codings", coded("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n"), 400},
        {"vertical tab before coding", coded("Transfer-Encoding: \vchunked\r\n"), 400},
        {"coding in HTTP/1.0", "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400},
        {"blank before colon", sized("Content-Length : 5\r\n"), 400},
        {"tab before colon", sized("Content-Length\t: 5\r\n"), 400},
        {"continued line", sized("X: a\r\n b\r\nContent-Length: 5\r\n"), 400},
        {"continued first line", "GET /p HTTP/1.1\r\n Host: h\r\n\r\n", 400},
        {"no colon", sized("Content-Length: 5\r\nNonsense\r\n"), 400},
        {"empty name", sized("Content-Length: 5\r\n: x\r\n"), 400},
        {"NUL in a value", sized("Content-Length: 5\r\nX: a\0b\r\n"s), 400},
        {"NUL in a name", sized("Content-Length: 5\r\nX\0Y: b\r\n"s), 400},
        {"bare CR in a value", sized("Content-Length: 5\r\nX: a\rb\r\n"), 400},
        {"bare LF line", "GET / HTTP/1.1\nHost: h\n\n", 400},
        {"one bare LF", "GET / HTTP/1.1\r\nHost: h\nX: y\r\n\r\n", 400},
        {"two empty lines", "\r\n\r\nGET / HTTP/1.1\r\nHost: here\r\n\r\n", 400},
        {"two hosts", "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400},
        {"no host", "GET / HTTP/1.1\r\n\r\n", 400},
        {"no host in 1.0", "GET / HTTP/1.0\r\n\r\n", 200},
        {"other host in the line", of_host_a("GET http://b/ HTTP/1.1"), 400},
        {"same host in the line", of_host_a("GET http://a/x HTTP/1.1"), 200},
        {"no slash", of_host_a("GET x HTTP/1.1"), 400},
        {"two blanks", of_host_a("GET  / HTTP/1.1"), 400},
        {"blank in the path", of_host_a("GET /a b HTTP/1.1"), 400},
        {"tab in the line", of_host_a("GET\t/ HTTP/1.1"), 400},
        {"bytes above ASCII in the path", of_host_a("GET /\xc3\xa9 HTTP/1.1"), 400},
        {"fragment", of_host_a("GET /a#b HTTP/1.1"), 400},
        {"bad percent", of_host_a("GET /%4 HTTP/1.1"), 400},
        {"encoded NUL", of_host_a("GET /a%00b HTTP/1.1"), 400},
        {"no version", of_host_a("GET /"), 400},
        {"version 2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505},
        {"version 1.2", of_host_a("GET / HTTP/1.2"), 505},
        {"lower-case version", of_host_a("GET / http/1.1"), 400},
        {"odd method", of_host_a("GE(T / HTTP/1.1"), 400},
        {"unknown method", of_host_a("BREW /pot HTTP/1.1"), 501},
        {"unknown expectation", sized("Content-Length: 5\r\nExpect: a-miracle\r\n"), 417},
        {"odd Range and Accept", of_host_a("GET / HTTP/1.1\r\nRange: rows=0-3\r\nAccept: a/b;q=7, ;;"), 200},
        {"TLS", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"s, 400},
        {"chunk, its extension and a trailer", chunks + "3;x=\"y\"\r\nabc\r\n0\r\nX-T: z\r\n\r\n", 200},
        {"chunk size that is none", chunks + "x\r\nabc\r\n0\r\n\r\n", 400},
        {"signed chunk size", chunks + "+3\r\nabc\r\n0\r\n\r\n", 400},
        {"0x chunk size", chunks + "0x3\r\nabc\r\n0\r\n\r\n", 400},
        {"blank before chunk size", chunks + " 3\r\nabc\r\n0\r\n\r\n", 400},
        {"chunk size of 17 digits", chunks + "10000000000000003\r\nabc\r\n0\r\n\r\n", 400},
        {"empty chunk size", chunks + "\r\nabc\r\n0\r\n\r\n", 400},
        {"LF in a chunk extension", chunks + "3;a\nb\r\nabc\r\n0\r\n\r\n", 400},
        {"chunk longer than said", chunks + "3\r\nabcd\r\n0\r\n\r\n", 400},
        {"chunk without its end", chunks + "3\r\nabc0\r\n\r\n", 400},
        {"trailer without a colon", chunks + "0\r\nnonsense\r\n\r\n", 400},
        {"request instead of the last line", chunks + "0\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\n", 400},
    };
}

/// Further bytes of connections.
inline std::vector<std::string> http_stream_examples() {
    const std::string start = "POST /p HTTP/1.1\r\nHost: h\r\n", sized = start + "Content-Length: 4\r\n\r\nabcd",
                      chunked = start + "Transfer-Encoding: chunked\r\n\r\n3;x=\"y\"\r\nabc\r\n";
    return {sized + sized + "GET /q HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\n\r\n",
            chunked + "A\r\n0123456789\r\n00\r\nX-Trailer: z\r\n\r\n" + chunked + "0\r\n\r\n" + sized,
            chunked + "ffffffffffffffff\r\nabc", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
            "HTTP/1.0 404 Not Found\r\nConnection: keep-alive\r\n\r\n"};
}

}  // namespace shared_tensor::test
