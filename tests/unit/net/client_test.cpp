#include "net/client/client.hpp"

#include <sys/socket.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <filesystem>

#include "base/bytes/ids.hpp"
#include "raw_client.hpp"
#include "test_server.hpp"

namespace shared_tensor::test {
namespace {

using Catch::Matchers::ContainsSubstring;
using net::ClientRequest;
using net::Endpoint;
using net::TransportError;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

TEST_CASE("an endpoint is read from its URL and written back", "[http]") {
    struct Case {
        const char* url;
        const char* host;
        int port;
        const char* path;
        const char* written;
    };
    const std::vector<Case> cases = {
        {"http://127.0.0.1:2538", "127.0.0.1", 2538, "", "http://127.0.0.1:2538"},
        {"http://gpu-host", "gpu-host", 2537, "", "http://gpu-host:2537"},
        {"HTTP://gpu-host:80/", "gpu-host", 80, "", "http://gpu-host:80"},
        {"http://[::1]:2537", "::1", 2537, "", "http://[::1]:2537"},
        {"https://gpu-host", "gpu-host", 2537, "", "https://gpu-host:2537"},
        {"HTTPS://[::1]:443", "::1", 443, "", "https://[::1]:443"},
        {"http://[fe80::1]", "fe80::1", 2537, "", "http://[fe80::1]:2537"},
        {"unix:/run/s", "", 0, "/run/s", "unix:/run/s"},
        {"unix:///run/s", "", 0, "/run/s", "unix:/run/s"},
        {"http+unix:///run/s", "", 0, "/run/s", "unix:/run/s"},
    };
    for (const auto& [url, host, port, path, written] : cases) {
        INFO(url);
        const auto endpoint = Endpoint::parse(url);
        CHECK(endpoint.host == host);
        CHECK(endpoint.port == port);
        CHECK(endpoint.unix_socket == path);
        CHECK(endpoint.url() == written);
    }
}

TEST_CASE("a URL that is none shows the accepted forms", "[http]") {
    for (const auto* url :
         {"", "127.0.0.1:2537", "ftp://x", "https://", "https://x/path", "http://", "http://:1", "http://x:0",
          "http://x:65536", "http://x:y", "http://x:1/path", "http://u@x", "http://[::1", "http://[::1]x",
          "unix:", "unix:relative", "http://a b", "http://a\r\nX: y"}) {
        INFO(url);
        CHECK_THROWS_WITH(Endpoint::parse(url), ContainsSubstring("http://host:port"));
    }
}

TEST_CASE("client and server understand each other over TCP and a Unix socket", "[http]") {
    const auto path = std::filesystem::temp_directory_path() / ("st-" + random_hex(8));
    net::ServerOptions options;
    options.unix_socket = path;
    TestServer under_test(options);
    under_test.handler.on_handle = [](net::Request request, net::ResponseStream&) {
        auto response = net::Response::json(200, std::string(request.text()));
        response.headers.add("X-Path", request.head.path + "?" + request.head.query);
        response.headers.add("X-Type", std::string(request.head.headers.find("Content-Type").value_or("none")));
        response.headers.add("X-Mine", std::string(request.head.headers.find("X-Mine").value_or("none")));
        response.headers.add("X-Host", std::string(request.head.headers.find("Host").value_or("none")));
        return response;
    };
    under_test.start();
    for (const auto& url : {"http://127.0.0.1:" + std::to_string(under_test.port()), "unix:" + path.string()}) {
        net::ClientOptions client_options;
        client_options.endpoint = Endpoint::parse(url);
        net::Client client(client_options);
        auto request = text_request("hello", "/p%20q?a=b");
        request.headers.add("X-Mine", "yes");
        const auto response = client.send(request);
        CHECK(response.status == 200);
        CHECK(response.text() == "hello");
        CHECK(response.headers.find("x-path") == "/p q?a=b");
        CHECK(response.headers.find("X-Type") == "application/json");
        CHECK(response.headers.find("X-Mine") == "yes");
        CHECK(response.headers.find("X-Host") == client_options.endpoint.authority());
        ClientRequest question;
        question.method = "GET";
        CHECK(client.send(question).headers.find("X-Type") == "none");
        question.method = "HEAD";
        CHECK(client.send(question).body->size() == 0);
        CHECK(client.stats().opened == 1);
        CHECK(client.stats().reused == 2);
    }
}

TEST_CASE("parts are sent one after another and large answers come back whole", "[http]") {
    TestServer under_test;
    under_test.handler.plan.max_bytes = std::size_t{1} << 30;
    under_test.start();
    net::Client client(options_for(under_test.port()));
    const std::string big(20'000'000, 'b');
    const std::string small = "small";
    ClientRequest request;
    for (const auto* text : {&small, &big, &small})
        request.parts.push_back({std::as_bytes(std::span(*text)), nullptr});
    const auto response = client.send(request);
    CHECK(response.text() == small + big + small);
    CHECK(reinterpret_cast<std::uintptr_t>(response.body->data()) % 64 == 0);
    const auto stats = client.stats();
    CHECK(stats.bytes_out > big.size() + 10);
    CHECK(stats.bytes_out < big.size() + 1000);
    CHECK(stats.bytes_in > big.size() + 10);
    CHECK(stats.bytes_in < big.size() + 1000);
}

TEST_CASE("no more than max_connections are open, however many threads call", "[http]") {
    EchoServer under_test;
    auto options = options_for(under_test.port());
    options.max_connections = 3;
    net::Client client(options);
    std::atomic<int> wrong{0};
    std::vector<std::jthread> threads;
    for (int t = 0; t < 12; ++t) {
        threads.emplace_back([&, t] {
            for (int i = 0; i < 50; ++i) {
                const std::string text = std::to_string(t * 1000 + i);
                if (client.send(text_request(text)).text() != text) ++wrong;
            }
        });
    }
    threads.clear();
    CHECK(wrong == 0);
    CHECK(client.stats().opened <= 3);
    CHECK(under_test.server.stats().accepted <= 3);
}

TEST_CASE("who finds no free connection in time is told that nothing was sent", "[http]") {
    RawServer server;
    auto options = options_for(server.port());
    options.max_connections = 1;
    net::Client client(options);
    std::jthread holder([&] { (void)failure_of(client); });
    auto connection = server.accept();
    RawServer::read_request(connection);
    auto request = text_request("y");
    request.deadline = steady_clock::now() + milliseconds(30);
    const auto error = failure_of(client, request);
    CHECK(error.kind == TransportError::Kind::timeout);
    CHECK_FALSE(error.sent);
    connection.close();
}

TEST_CASE("a refused connection is an error that names the address, and nothing was sent", "[http]") {
    int port = 0;
    { port = RawServer().port(); }
    net::Client client(options_for(port));
    const auto error = failure_of(client);
    CHECK(error.kind == TransportError::Kind::connect);
    CHECK_FALSE(error.sent);
    CHECK_THAT(error.what(), ContainsSubstring("127.0.0.1:" + std::to_string(port)));

    auto options = options_for(port);
    options.endpoint = Endpoint::parse("unix:/no/such/socket");
    net::Client local(options);
    CHECK(failure_of(local).kind == TransportError::Kind::connect);
}

TEST_CASE("an answer that does not come in time ends the wait, and may have been seen", "[http]") {
    RawServer server;
    net::Client client(options_for(server.port()));
    auto request = text_request("x");
    const auto start = steady_clock::now();
    request.deadline = start + milliseconds(500);
    const auto error = failure_of(client, request);
    CHECK(error.kind == TransportError::Kind::timeout);
    CHECK(error.sent);
    CHECK(steady_clock::now() - start >= milliseconds(500));
    CHECK(steady_clock::now() - start < std::chrono::seconds(20));
}

TEST_CASE("a deadline covers the whole answer, however steadily it trickles", "[http]") {
    RawServer server;
    net::Client client(options_for(server.port()));
    std::jthread serves([&] {
        auto connection = server.accept();
        RawServer::read_request(connection);
        connection.send("HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n");
        const auto trickles = trickle(connection);
        connection.read_to_end();
    });
    auto request = text_request("x");
    request.deadline = steady_clock::now() + milliseconds(100);
    CHECK(failure_of(client, request).kind == TransportError::Kind::timeout);
}

TEST_CASE("a server that does not read a large request does not hold the client", "[http]") {
    RawServer server;
    net::Client client(options_for(server.port()));
    const std::string big(64 << 20, 'x');
    ClientRequest request;
    request.parts.push_back({std::as_bytes(std::span(big)), nullptr});
    request.deadline = steady_clock::now() + milliseconds(100);
    const auto error = failure_of(client, request);
    CHECK(error.kind == TransportError::Kind::timeout);
    CHECK_FALSE(error.sent);  // not whole, so nothing can have run
}

TEST_CASE("a kept-alive connection that the server closed is replaced before anything is sent", "[http]") {
    EchoServer under_test;
    net::ServerOptions server_options;
    server_options.port = under_test.port();
    net::Client client(options_for(under_test.port()));
    REQUIRE(client.send(text_request("a")).text() == "a");
    under_test.server.stop(milliseconds(0));
    EchoServer again(server_options);
    CHECK(client.send(text_request("b")).text() == "b");
    CHECK(client.stats().opened == 2);
}

TEST_CASE("a connection that was unused for longer than the idle limit is not used again", "[http]") {
    EchoServer under_test;
    auto options = options_for(under_test.port());
    options.idle_limit = milliseconds(0);
    net::Client client(options);
    client.send(text_request("a"));
    std::this_thread::sleep_for(milliseconds(2));
    client.send(text_request("b"));
    CHECK(client.stats().opened == 2);
}

/// A server by hand that answers one request, closes its side, and waits for the client to close.
std::jthread answer_once(RawServer& server, const std::string& answer, bool byte_by_byte) {
    return std::jthread([&server, answer, byte_by_byte] {
        auto connection = server.accept();
        RawServer::read_request(connection);
        const std::size_t piece = byte_by_byte ? 1 : answer.size() + 1;
        for (std::size_t at = 0; at < answer.size(); at += piece)
            connection.send(std::string_view(answer).substr(at, piece));
        connection.half_close();
        connection.read_to_end();
    });
}

TEST_CASE("a server's misbehaviour is an error that says what it was", "[http]") {
    using Kind = TransportError::Kind;
    struct Case {
        const char* name;
        std::string answer;  // then the server closes
        Kind kind;
    };
    const std::vector<Case> cases = {
        {"nothing", "", Kind::broken},
        {"half a head", "HTTP/1.1 200 OK\r\nContent-", Kind::broken},
        {"half a body", "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n12345", Kind::broken},
        {"half a chunk", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n10\r\n123", Kind::broken},
        {"no HTTP", "SSH-2.0-OpenSSH_9.2\r\n\r\n", Kind::protocol},
        {"bare LF", "HTTP/1.1 200 OK\nContent-Length: 0\n\n", Kind::protocol},
        {"two lengths", "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nx", Kind::protocol},
        {"length and chunks", "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\nx",
         Kind::protocol},
        {"bad chunk", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", Kind::protocol},
        {"endless head", "HTTP/1.1 200 OK\r\nX: " + std::string(100'000, 'x'), Kind::protocol},
        {"endless interim answers",
         [] {
             std::string all;
             for (int i = 0; i < 100; ++i)
                 all += "HTTP/1.1 100 Continue\r\n\r\n";
             return all;
         }(),
         Kind::protocol},
        {"too large", "HTTP/1.1 200 OK\r\nContent-Length: 1001\r\n\r\n", Kind::too_large},
        {"too large in chunks",
         "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3e9\r\n" + std::string(1001, 'x') + "\r\n0\r\n\r\n",
         Kind::too_large},
        {"too large to the end", "HTTP/1.1 200 OK\r\n\r\n" + std::string(1001, 'x'), Kind::too_large},
    };
    RawServer server;
    auto options = options_for(server.port());
    options.max_response_bytes = 1000;
    net::Client client(options);
    for (const auto& [name, answer, kind] : cases) {
        INFO(name);
        const auto misbehaves = answer_once(server, answer, false);
        const auto error = failure_of(client);
        CHECK(error.kind == kind);
        CHECK(error.sent);
    }
    CHECK(client.stats().opened == cases.size());  // no such connection is used twice
}

TEST_CASE("answers of every framing are understood", "[http]") {
    struct Case {
        const char* name;
        std::string answer;
        std::string body;
        int status;
    };
    const std::vector<Case> cases = {
        {"length", "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc", "abc", 200},
        {"chunks", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1;e=f\r\nc\r\n0\r\nT: u\r\n\r\n",
         "abc", 200},
        {"to the end", "HTTP/1.1 200 OK\r\n\r\nabc", "abc", 200},
        {"HTTP/1.0", "HTTP/1.0 404 No\r\n\r\nabc", "abc", 404},
        {"interim", "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc", "abc", 200},
        {"204", "HTTP/1.1 204 No Content\r\n\r\n", "", 204},
        {"304 with a length", "HTTP/1.1 304 Not Modified\r\nContent-Length: 3\r\n\r\n", "", 304},
        {"a redirect is not followed", "HTTP/1.1 307 Go\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n",
         "", 307},
    };
    RawServer server;
    auto options = options_for(server.port());
    for (const auto& [name, answer, body, status] : cases) {
        INFO(name);
        const auto serves = answer_once(server, answer, true);
        net::Client client(options);  // ends before the thread does, which waits for its end
        const auto response = client.send(text_request("x"));
        CHECK(response.status == status);
        CHECK(response.text() == body);
    }
}

TEST_CASE("a server that rejects a large body early is heard", "[http]") {
    TestServer under_test;
    under_test.handler.plan.max_bytes = 1000;
    under_test.start();
    net::Client client(options_for(under_test.port()));
    const std::string big(64 << 20, 'x');
    ClientRequest request;
    request.parts.push_back({std::as_bytes(std::span(big)), nullptr});
    CHECK(client.send(request).status == 413);
    CHECK(client.send(text_request("fits")).text() == "fits");
}

TEST_CASE("a request that could be split is rejected before it is sent", "[http]") {
    EchoServer under_test;
    net::Client client(options_for(under_test.port()));
    auto bad_header = text_request("x");
    bad_header.headers.add("X-Y", "a\r\nHost: b");
    auto bad_path = text_request("x", "/a b");
    auto relative = text_request("x", "a");
    auto bad_method = text_request("x");
    bad_method.method = "GET /";
    for (const auto& request : {bad_header, bad_path, relative, bad_method}) {
        const auto error = failure_of(client, request);
        CHECK(error.kind == TransportError::Kind::protocol);
        CHECK_FALSE(error.sent);
    }
    CHECK(under_test.handler.admitted().empty());
}

TEST_CASE("shutdown ends every wait, and later calls fail at once", "[http]") {
    RawServer server;
    auto options = options_for(server.port());
    options.max_connections = 1;
    net::Client client(options);
    std::atomic<int> ended{0};
    std::vector<std::jthread> waiting;
    for (int i = 0; i < 3; ++i) {
        waiting.emplace_back([&] {
            ClientRequest request;  // without a deadline
            if (failure_of(client, request).kind == TransportError::Kind::broken) ++ended;
        });
    }
    auto connection = server.accept();
    RawServer::read_request(connection);
    client.shutdown();
    waiting.clear();
    CHECK(ended == 3);
    CHECK_FALSE(failure_of(client).sent);
}

TEST_CASE("an answer outlives its client", "[http]") {
    EchoServer under_test;
    net::ClientResponse response;
    {
        net::Client client(options_for(under_test.port()));
        response = client.send(text_request("kept"));
    }
    CHECK(response.text() == "kept");
}

}  // namespace
}  // namespace shared_tensor::test
