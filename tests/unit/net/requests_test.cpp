#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <thread>

#include "support/http_examples.hpp"
#include "test_server.hpp"
#include "web_socket/web_socket_peer.hpp"

namespace shared_tensor::test {
namespace {

using net::Response;

TEST_CASE("a request that could be read in two ways is rejected, and the connection ends", "[http][tls]") {
    EitherServer under_test(GENERATE(Over::tcp, Over::tls, Over::unix_socket));
    for (const auto& [name, request, status] : http_examples()) {
        INFO(name);
        const auto client = under_test.raw_client();
        client->send(request + (status == 200 ? "" : get("/smuggled")));
        const auto answer = client->read_answer();
        CHECK(answer.status == status);
        if (status == 200) continue;
        CHECK(answer.has("Connection: close"));
        CHECK(answer.body.starts_with("fault: "));
        CHECK(client->is_closed());
    }
    for (const auto& path : under_test.handler.admitted())
        CHECK(path != "/smuggled");
}

TEST_CASE("requests that come together are all answered in their order", "[http][tls]") {
    EitherServer under_test(GENERATE(Over::tcp, Over::tls, Over::unix_socket));
    const auto client = under_test.raw_client();
    std::string all;
    for (int i = 0; i < 100; ++i) {
        all += "\r\n" + post("/p", "number " + std::to_string(i));  // one empty line before a request is skipped
        all += chunked("in chunks " + std::to_string(i), 2);
    }
    client->send(all + get("/", "Connection: close\r\n"));
    for (int i = 0; i < 100; ++i) {
        REQUIRE(client->read_answer().body == "number " + std::to_string(i));
        REQUIRE(client->read_answer().body == "in chunks " + std::to_string(i));
    }
    CHECK(client->read_answer().has("Connection: close"));
    CHECK(client->is_closed());
}

TEST_CASE("another thread answers a request that its handler still works on, and the connection closes",
          "[http][tls]") {
    EitherServer under_test(GENERATE(Over::tcp, Over::tls, Over::unix_socket));
    Event answered, read;
    std::atomic<bool> could_answer{false};
    under_test.handler.on_handle = [&](const net::Request&, net::ResponseStream& stream) {
        could_answer = stream.can_answer_now();
        std::jthread([&] { stream.answer_now(net::Response::json(200, "soon")); }).join();
        answered.set();
        read.wait();
        return net::Response::json(200, "late");
    };
    const auto client = under_test.raw_client();
    client->send(post("/p", "x") + post("/p", "unread"));
    CHECK(answered.wait());
    CHECK(could_answer);
    const auto answer = client->read_answer();
    CHECK(answer.body == "soon");
    CHECK(answer.has("Connection: close"));
    CHECK(client->is_closed());  // nothing follows
    read.set();
    CHECK(eventually([&] { return under_test.server.stats().connections == 0; }));
    CHECK(under_test.handler.admitted().size() == 1);
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
    SafeServer safe;
    RawClient socket(safe.port());
    SafeClient client(std::move(socket));
    for (const std::string& part : {request.substr(0, 40), request.substr(40)}) {
        for (const char byte : client.tls().seal(part))
            client.tls().socket().send({&byte, 1});
    }
    CHECK(client.read_answer().body == "0123456789");
}

TEST_CASE("the limits of a head are exact, and answered with 414 and 431", "[http]") {
    net::ServerOptions options;
    options.head = {.line_bytes = 32, .fields = 3, .head_bytes = 90};
    EchoServer under_test(options);
    const auto x = [](std::size_t count) { return std::string(count, 'x'); };
    const auto head = [](const std::string& path, const std::string& fields) {
        return "GET " + path + " HTTP/1.1\r\nHost: h\r\n" + fields + "\r\n";
    };
    const std::pair<std::string, int> table[] = {
        {head("/" + x(18), ""), 200},
        {head("/" + x(19), ""), 414},
        {"GET /" + x(40), 414},  // without waiting for its end
        {head("/", "X: " + x(29) + "\r\n"), 200},
        {head("/", "X: " + x(30) + "\r\n"), 431},
        {"GET / HTTP/1.1\r\nX: " + x(40), 431},
        {head("/", "A: 1\r\nB: 2\r\n"), 200},
        {head("/", "A: 1\r\nB: 2\r\nC: 3\r\n"), 431},
        {head("/" + x(16), "X: " + x(21) + "\r\nY: " + x(16) + "\r\n"), 200},
        {head("/" + x(16), "X: " + x(21) + "\r\nY: " + x(17) + "\r\n"), 431},
    };
    for (const auto& [request, status] : table) {
        INFO(request);
        RawClient client(under_test.port());
        client.send(request);
        CHECK(client.read_answer().status == status);
    }
}

TEST_CASE("the handler sees head and peer as they are", "[http]") {
    net::RequestHead seen;
    EchoServer under_test;
    under_test.handler.on_handle = [&](net::Request request, net::ResponseStream&) {
        seen = std::move(request.head);
        return Response::json(200, "");
    };
    RawClient client(under_test.port());
    client.send("POST /a%2Fb%20c?q=1&e HTTP/1.1\r\nHost: h\r\nX-Y:  two words \r\nx-y: 2\r\nContent-Length: 0\r\n\r\n");
    REQUIRE(client.read_answer().status == 200);
    CHECK(seen.method == "POST");
    CHECK(seen.path == "/a/b c");
    CHECK(seen.query == "q=1&e");
    CHECK(seen.headers.find("X-y") == "two words");
    CHECK(seen.headers.count("X-Y") == 2);
    CHECK(seen.peer.ip == "127.0.0.1");
    CHECK(seen.peer.uid == ::getuid());
    CHECK_FALSE(seen.peer.unix_socket);
}

TEST_CASE("an answer says no more than it must, and no header of it can split it", "[http]") {
    EchoServer under_test;
    under_test.handler.on_handle = [](net::Request request, net::ResponseStream&) {
        Response response;
        response.status = 204;
        if (request.head.path == "/204") return response;
        response = Response::json(200, "12345");
        if (request.head.path == "/bad") {
            response.headers.add("X-Good", "yes");
            response.headers.add("X-Bad", "a\r\nX-Injected: b");
            response.headers.add("X Bad", "b");
            response.headers.add("Content-Length", "0");
        }
        return response;
    };
    RawClient client(under_test.port());
    client.send(get("/") + "HEAD /p HTTP/1.1\r\nHost: here\r\n\r\n" + get("/204") + get("/bad"));
    const std::string head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 5\r\n\r\n";
    const auto answer = client.read_answer();
    CHECK(answer.head == head);
    CHECK(answer.body == "12345");
    CHECK(client.read_answer(true).head == head);  // and no body
    CHECK(client.read_answer().head == "HTTP/1.1 204 No Content\r\n\r\n");
    const auto split = client.read_answer();
    CHECK(split.has("X-Good: yes"));
    CHECK_FALSE(split.has("Injected"));
    CHECK_FALSE(split.has("X Bad"));
    CHECK(split.body == "12345");
}

TEST_CASE("a connection is kept as the version, the Connection field and the answer say", "[http]") {
    EchoServer under_test;
    under_test.handler.on_handle = [](net::Request request, net::ResponseStream&) {
        auto response = Response::json(200, "a");
        response.close = request.head.path == "/close";
        return response;
    };
    const std::string old = "GET / HTTP/1.0\r\n";
    const std::pair<std::string, bool> table[] = {
        {get("/"), true},
        {get("/close"), false},
        {get("/", "Connection: TE, Close\r\n"), false},
        {get("/", "Connection: keep-alive\r\nConnection: close\r\n"), false},
        {old + "\r\n", false},
        {old + "Connection: Keep-Alive\r\n\r\n", true},
    };
    for (const auto& [request, is_kept] : table) {
        INFO(request);
        RawClient client(under_test.port());
        client.send(request);
        const auto answer = client.read_answer();
        CHECK(answer.has("Connection: close\r\n") != is_kept);
        CHECK(answer.has("Connection: keep-alive\r\n") == (is_kept && request.starts_with(old)));
        client.send(request);
        CHECK(client.read_answer().status == (is_kept ? 200 : 0));
    }
    RawClient client(under_test.port());
    client.send(post("/p", "a"));
    client.half_close();  // it still gets its answer
    CHECK(client.read_answer().body == "a");
    CHECK(client.is_closed());
}

TEST_CASE("a handler that throws is answered with a bare 500 and the server goes on", "[http]") {
    const QuietLog quiet;
    EchoServer under_test;
    under_test.handler.on_admit = [](const net::RequestHead& head) -> std::variant<net::BodyPlan, Response> {
        if (head.path == "/admit") throw 1;
        return net::BodyPlan{100, false};
    };
    under_test.handler.on_handle = [](net::Request request, net::ResponseStream&) {
        if (request.head.path == "/handle") throw std::runtime_error("thrown by the test's handler");
        return Response::json(200, "fine");
    };
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

}  // namespace
}  // namespace shared_tensor::test
