#include <catch2/catch_test_macros.hpp>
#include <cstring>

#include "raw_client.hpp"
#include "test_server.hpp"

namespace shared_tensor::test {
namespace {

using net::Response;

struct Rejected {
    std::string name;
    std::string bytes;
    int status;
};

/// Behind each of these comes a request that must never be seen: it is the smuggled one.
const std::string kSmuggled = "GET /smuggled HTTP/1.1\r\nHost: here\r\n\r\n";

TEST_CASE("a request that could be read in two ways gets 400 and the connection ends", "[http]") {
    using namespace std::string_literals;
    const std::string head = "POST /p HTTP/1.1\r\nHost: here\r\n";
    const std::string chunked = head + "Transfer-Encoding: chunked\r\n\r\n";
    const std::vector<Rejected> cases = {
        {"length and coding", head + "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400},
        {"two lengths", head + "Content-Length: 0\r\nContent-Length: 40\r\n\r\n", 400},
        {"unknown coding", head + "Transfer-Encoding: cow\r\n\r\n", 400},
        {"blank before colon", head + "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n", 400},
        {"bare LF", "POST /p HTTP/1.1\r\nHost: here\nContent-Length: 0\r\n\r\n", 400},
        {"continued line", head + "X: y\r\n z\r\nContent-Length: 0\r\n\r\n", 400},
        {"NUL in a header", head + "X: y\0z\r\nContent-Length: 0\r\n\r\n"s, 400},
        {"TLS", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"s, 400},
        {"two empty lines", "\r\n\r\nGET / HTTP/1.1\r\nHost: here\r\n\r\n", 400},
        {"HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505},
        {"chunk size that is none", chunked + "x\r\nabc\r\n0\r\n\r\n", 400},
        {"signed chunk size", chunked + "+3\r\nabc\r\n0\r\n\r\n", 400},
        {"0x chunk size", chunked + "0x3\r\nabc\r\n0\r\n\r\n", 400},
        {"blank before chunk size", chunked + " 3\r\nabc\r\n0\r\n\r\n", 400},
        {"chunk size of 17 digits", chunked + "10000000000000003\r\nabc\r\n0\r\n\r\n", 400},
        {"empty chunk size", chunked + "\r\nabc\r\n0\r\n\r\n", 400},
        {"LF in a chunk extension", chunked + "3;a\nb\r\nabc\r\n0\r\n\r\n", 400},
        {"chunk longer than said", chunked + "3\r\nabcd\r\n0\r\n\r\n", 400},
        {"chunk without its end", chunked + "3\r\nabc0\r\n\r\n", 400},
        {"trailer without a colon", chunked + "0\r\nnonsense\r\n\r\n", 400},
        {"request instead of the last line", chunked + "0\r\n" + kSmuggled, 400},
    };
    EchoServer under_test;
    for (const auto& [name, bytes, status] : cases) {
        INFO(name);
        RawClient client(under_test.port());
        client.send(bytes + kSmuggled);
        const auto answer = client.read_answer();
        CHECK(answer.status == status);
        CHECK(answer.has("Connection: close"));
        CHECK(answer.body.starts_with("fault: "));
        CHECK(client.is_closed());
    }
    for (const auto& path : under_test.handler.admitted())
        CHECK(path != "/smuggled");
}

TEST_CASE("pipelined requests are all answered in their order", "[http]") {
    EchoServer under_test;
    RawClient client(under_test.port());
    std::string all;
    for (int i = 0; i < 200; ++i)
        all += post("/p", "number " + std::to_string(i));
    client.send(all);
    for (int i = 0; i < 200; ++i)
        REQUIRE(client.read_answer().body == "number " + std::to_string(i));
}

TEST_CASE("a request arrives whole in pieces of every size", "[http]") {
    EchoServer under_test;
    const std::string request = post("/p", "0123456789", "X: y\r\n");
    for (std::size_t cut = 1; cut < request.size(); ++cut) {
        RawClient client(under_test.port());
        client.send(request.substr(0, cut));
        // the server has seen the first piece before the second is sent, or it had no chance to cut there
        if (cut % 16 == 0) {
            REQUIRE(eventually([&] { return under_test.server.stats().accepted == cut; }));
        }
        client.send(request.substr(cut));
        REQUIRE(client.read_answer().body == "0123456789");
    }
}

TEST_CASE("one empty line before a request is skipped", "[http]") {
    EchoServer under_test;
    RawClient client(under_test.port());
    client.send("\r\n" + post("/p", "a") + "\r\n" + post("/p", "b"));
    CHECK(client.read_answer().body == "a");
    CHECK(client.read_answer().body == "b");
}

TEST_CASE("the head's limits are answered with 414 and 431", "[http]") {
    net::ServerOptions options;
    options.head.line_bytes = 100;
    options.head.fields = 5;
    options.head.head_bytes = 400;
    EchoServer under_test(options);
    const auto status = [&](const std::string& bytes) {
        RawClient client(under_test.port());
        client.send(bytes);
        return client.read_answer().status;
    };
    CHECK(status(get("/" + std::string(200, 'x'))) == 414);
    CHECK(status(get("/", "X: " + std::string(200, 'x') + "\r\n")) == 431);
    CHECK(status(get("/", "A: 1\r\nB: 2\r\nC: 3\r\nD: 4\r\nE: 5\r\n")) == 431);
    const std::string wide(90, 'x');
    CHECK(status(get("/", "A: " + wide + "\r\nB: " + wide + "\r\nC: " + wide + "\r\nD: " + wide + "\r\n")) == 431);
    CHECK(status(get("/", "A: 1\r\nB: 2\r\nC: 3\r\nD: 4\r\n")) == 200);
}

TEST_CASE("a POST without a length gets 411, a method that HTTP does not know 501", "[http]") {
    EchoServer under_test;
    for (const auto& [line, status] : {std::pair("POST /p", 411), std::pair("BREW /pot", 501)}) {
        RawClient client(under_test.port());
        client.send(line + std::string(" HTTP/1.1\r\nHost: here\r\n\r\n"));
        CHECK(client.read_answer().status == status);
        CHECK(client.is_closed());
    }
}

TEST_CASE("odd Range and Accept fields reach the handler like any other", "[http]") {
    EchoServer under_test;
    RawClient client(under_test.port());
    client.send(get("/p", "Range: rows=0-3\r\nAccept: a/b;q=7, ;;\r\n"));
    CHECK(client.read_answer().status == 200);
}

TEST_CASE("HEAD gets the head of the answer and no body", "[http]") {
    TestServer under_test;
    under_test.handler.on_handle = [](net::Request, net::ResponseStream&) { return Response::json(200, "12345"); };
    under_test.start();
    RawClient client(under_test.port());
    client.send("HEAD /p HTTP/1.1\r\nHost: here\r\n\r\n" + get("/p"));
    const auto answer = client.read_answer(true);
    CHECK(answer.has("Content-Length: 5\r\n"));
    CHECK(client.read_answer().body == "12345");
}

TEST_CASE("an answer says no more than it must", "[http]") {
    EchoServer under_test;
    RawClient client(under_test.port());
    client.send(post("/p", "a"));
    CHECK(client.read_answer().head ==
          "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 1\r\n\r\n");
}

TEST_CASE("a header of an answer cannot split it", "[http]") {
    TestServer under_test;
    under_test.handler.on_handle = [](net::Request, net::ResponseStream&) {
        auto response = Response::json(200, "a");
        response.headers.add("X-Good", "yes");
        response.headers.add("X-Bad", "a\r\nX-Injected: b");
        response.headers.add("X Bad", "b");
        response.headers.add("Content-Length", "0");
        return response;
    };
    under_test.start();
    RawClient client(under_test.port());
    client.send(get("/"));
    const auto answer = client.read_answer();
    CHECK(answer.has("X-Good: yes"));
    CHECK_FALSE(answer.has("Injected"));
    CHECK_FALSE(answer.has("X Bad"));
    CHECK(answer.body == "a");
}

TEST_CASE("204 has neither body nor length", "[http]") {
    TestServer under_test;
    under_test.handler.on_handle = [](net::Request, net::ResponseStream&) {
        Response response;
        response.status = 204;
        return response;
    };
    under_test.start();
    RawClient client(under_test.port());
    client.send(get("/") + get("/"));
    CHECK(client.read_answer().head == "HTTP/1.1 204 No Content\r\n\r\n");
    CHECK(client.read_answer().status == 204);
}

TEST_CASE("the connection ends after an answer when either side says so", "[http]") {
    TestServer under_test;
    under_test.handler.on_handle = [](net::Request request, net::ResponseStream&) {
        auto response = Response::json(200, "a");
        response.close = request.head.path == "/close";
        return response;
    };
    under_test.start();
    for (const auto& request :
         {get("/", "Connection: close\r\n"), get("/close"), std::string("GET / HTTP/1.0\r\n\r\n")}) {
        RawClient client(under_test.port());
        client.send(request);
        CHECK(client.read_answer().has("Connection: close\r\n"));
        CHECK(client.is_closed());
    }
}

TEST_CASE("an HTTP/1.0 client that asks for it keeps its connection", "[http]") {
    EchoServer under_test;
    RawClient client(under_test.port());
    for (int i = 0; i < 2; ++i) {
        client.send("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
        CHECK(client.read_answer().has("Connection: keep-alive\r\n"));
    }
}

TEST_CASE("a client that closes its sending side still gets its answer", "[http]") {
    EchoServer under_test;
    RawClient client(under_test.port());
    client.send(post("/p", "a"));
    client.half_close();
    CHECK(client.read_answer().body == "a");
    CHECK(client.is_closed());
}

TEST_CASE("a handler that throws is answered with a bare 500 and the server goes on", "[http]") {
    TestServer under_test;
    under_test.handler.on_admit = [](const net::RequestHead& head) -> std::variant<net::BodyPlan, Response> {
        if (head.path == "/admit") throw 1;
        return net::BodyPlan{100, false};
    };
    under_test.handler.on_handle = [](net::Request request, net::ResponseStream&) {
        if (request.head.path == "/handle") throw std::runtime_error("thrown by the test's handler");
        return Response::json(200, "fine");
    };
    under_test.start();
    for (const auto* path : {"/admit", "/handle"}) {
        RawClient client(under_test.port());
        client.send(get(path));
        CHECK(client.read_answer().status == 500);
        CHECK(client.is_closed());
    }
    RawClient client(under_test.port());
    client.send(get("/"));
    CHECK(client.read_answer().body == "fine");
}

TEST_CASE("the handler sees head and peer as they are", "[http]") {
    net::RequestHead seen;
    TestServer under_test;
    under_test.handler.on_handle = [&](net::Request request, net::ResponseStream&) {
        seen = std::move(request.head);
        return Response::json(200, "");
    };
    under_test.start();
    RawClient client(under_test.port());
    client.send("POST /a%2Fb?q=1 HTTP/1.1\r\nHost: h\r\nX: 1\r\nx: 2\r\nContent-Length: 0\r\n\r\n");
    REQUIRE(client.read_answer().status == 200);
    CHECK(seen.method == "POST");
    CHECK(seen.path == "/a/b");
    CHECK(seen.query == "q=1");
    CHECK(seen.headers.find("X") == "1");
    CHECK(seen.headers.count("X") == 2);
    CHECK(seen.peer.ip == "127.0.0.1");
    CHECK(seen.peer.uid == ::getuid());
    CHECK_FALSE(seen.peer.unix_socket);
}

}  // namespace
}  // namespace shared_tensor::test
