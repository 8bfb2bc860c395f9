#include <catch2/catch_test_macros.hpp>
#include <cstdint>

#include "raw_client.hpp"
#include "test_server.hpp"

namespace shared_tensor::test {
namespace {

using net::BodyPlan;
using net::Response;

std::string pattern(std::size_t size) {
    std::string text(size, '\0');
    for (std::size_t i = 0; i < size; ++i)
        text[i] = static_cast<char>('a' + (i * 7 + i / 1000) % 26);
    return text;
}

std::string chunked(std::string_view body, std::size_t piece) {
    std::string text = "POST /p HTTP/1.1\r\nHost: here\r\nTransfer-Encoding: chunked\r\n\r\n";
    char size[20];
    while (!body.empty()) {
        const std::string_view part = body.substr(0, piece);
        std::snprintf(size, sizeof size, "%zx\r\n", part.size());
        text.append(size).append(part).append("\r\n");
        body.remove_prefix(part.size());
    }
    return text.append("0\r\n\r\n");
}

TEST_CASE("a body of any size arrives whole, with a length or in chunks", "[http]") {
    TestServer under_test;
    under_test.handler.plan.max_bytes = 64 << 20;
    under_test.start();
    RawClient client(under_test.port());
    for (const std::size_t size : {0, 1, 4095, 4096, 65535, 65536, 65537, 1 << 20, 5'000'000}) {
        INFO(size);
        const std::string body = pattern(size);
        std::jthread sender([&] { client.send(post("/p", body)); });
        CHECK(client.read_answer().body == body);
    }
    for (const std::size_t piece : {1, 7, 16384, 100'000}) {
        INFO(piece);
        const std::string body = pattern(piece == 1 ? 5'000 : 3'000'000);
        std::jthread sender([&] { client.send(chunked(body, piece)); });
        CHECK(client.read_answer().body == body);
    }
}

TEST_CASE("a request follows a chunked one on the same connection", "[http]") {
    EchoServer under_test;
    RawClient client(under_test.port());
    client.send(
        chunked("first", 2) + post("/p", "second") +
        "POST /p HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3;x=\"y\"\r\nabc\r\n0\r\nX-T: z\r\n\r\n" +
        post("/p", "third"));
    CHECK(client.read_answer().body == "first");
    CHECK(client.read_answer().body == "second");
    CHECK(client.read_answer().body == "abc");
    CHECK(client.read_answer().body == "third");
}

TEST_CASE("a body is 64-byte aligned and may be kept beyond the request", "[http]") {
    Guarded<std::vector<std::shared_ptr<PooledBuffer>>> kept;
    TestServer under_test;
    under_test.handler.on_handle = [&](net::Request request, net::ResponseStream&) {
        kept.with([&](auto& all) { all.push_back(std::move(request.body)); });
        return Response::json(200, "");
    };
    {
        under_test.start();
        RawClient client(under_test.port());
        for (const auto* text : {"one", "two"}) {
            client.send(post("/p", text));
            REQUIRE(client.read_answer().status == 200);
        }
        under_test.server.stop(std::chrono::milliseconds(0));
    }
    kept.with([](auto& all) {
        REQUIRE(all.size() == 2);
        CHECK(reinterpret_cast<std::uintptr_t>(all[0]->data()) % 64 == 0);
        CHECK(std::string(reinterpret_cast<const char*>(all[0]->data()), all[0]->size()) == "one");
        CHECK(std::string(reinterpret_cast<const char*>(all[1]->data()), all[1]->size()) == "two");
    });
}

TEST_CASE("a body beyond the plan's limit gets 413, one of exactly the limit passes", "[http]") {
    TestServer under_test;
    under_test.handler.plan.max_bytes = 1000;
    under_test.start();
    for (const bool in_chunks : {false, true}) {
        INFO(in_chunks);
        const auto request = [&](std::size_t size) {
            const std::string body = pattern(size);
            return in_chunks ? chunked(body, 300) : post("/p", body);
        };
        RawClient client(under_test.port());
        client.send(request(1000));
        CHECK(client.read_answer().status == 200);
        client.send(request(1001) + get("/smuggled"));
        const auto answer = client.read_answer();
        CHECK(answer.status == 413);
        CHECK(answer.body.starts_with("fault: "));
        CHECK(client.is_closed());
    }
    for (const auto& path : under_test.handler.admitted())
        CHECK(path != "/smuggled");
    RawClient greedy(under_test.port());  // sends much more, and still reads why it was rejected
    greedy.send(post("/p", pattern(8'000'000)));
    CHECK(greedy.read_answer().status == 413);
}

TEST_CASE("a chunked body may not come in too many chunks", "[http]") {
    net::ServerOptions options;
    options.max_chunks = 100;
    EchoServer under_test(options);
    RawClient client(under_test.port());
    client.send(chunked(pattern(100), 1));
    CHECK(client.read_answer().status == 200);
    client.send(chunked(pattern(101), 1));
    CHECK(client.read_answer().status == 413);
}

TEST_CASE("bodies in flight together have a limit, which kept bodies count against", "[http]") {
    net::ServerOptions options;
    options.max_bytes_in_flight = 100'000;
    Guarded<std::vector<std::shared_ptr<PooledBuffer>>> kept;
    TestServer under_test(options);
    under_test.handler.on_handle = [&](net::Request request, net::ResponseStream&) {
        kept.with([&](auto& all) { all.push_back(std::move(request.body)); });
        return Response::json(200, "");
    };
    under_test.start();
    const auto status = [&](const std::string& request) {
        RawClient client(under_test.port());
        client.send(request);
        return client.read_answer().status;
    };
    CHECK(status(post("/p", pattern(60'000))) == 200);
    CHECK(status(post("/p", pattern(60'000))) == 503);
    CHECK(status(chunked(pattern(100), 100)) == 503);
    CHECK(status(post("/p", pattern(40'000))) == 200);
    kept.with([](auto& all) { all.clear(); });
    CHECK(status(post("/p", pattern(60'000))) == 200);
}

TEST_CASE("the handler decides on the headers alone, before a byte of the body came", "[http]") {
    TestServer under_test;
    under_test.handler.on_admit = [](const net::RequestHead&) { return Response::json(401, "no token"); };
    under_test.start();
    RawClient client(under_test.port());
    client.send("POST /p HTTP/1.1\r\nHost: here\r\nContent-Length: 1000000\r\n\r\n");
    const auto answer = client.read_answer();
    CHECK(answer.status == 401);
    CHECK(answer.body == "no token");
    CHECK(answer.has("Connection: close"));
    CHECK(client.is_closed());
}

TEST_CASE("a rejection keeps the connection when the body is there already", "[http]") {
    TestServer under_test;
    under_test.handler.on_admit = [](const net::RequestHead& head) -> std::variant<BodyPlan, Response> {
        if (head.path == "/no") return Response::json(403, "no");
        return BodyPlan{100, false};
    };
    under_test.start();
    RawClient client(under_test.port());
    client.send(post("/no", "body") + post("/yes", "answered"));
    CHECK(client.read_answer().status == 403);
    CHECK(client.read_answer().body == "answered");
}

TEST_CASE("Expect: 100-continue is answered once the request is admitted", "[http]") {
    TestServer under_test;
    under_test.handler.on_admit = [](const net::RequestHead& head) -> std::variant<BodyPlan, Response> {
        if (head.path == "/no") return Response::json(401, "no");
        return BodyPlan{1000, false};
    };
    under_test.start();
    const auto head = [](std::string_view path, std::size_t size) {
        return "POST " + std::string(path) +
               " HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: " + std::to_string(size) + "\r\n\r\n";
    };
    RawClient client(under_test.port());
    client.send(head("/yes", 5));
    CHECK(client.read_answer().head == "HTTP/1.1 100 Continue\r\n\r\n");
    client.send("hello");
    CHECK(client.read_answer().body == "hello");

    client.send(head("/yes", 5) + "hello");  // sent without waiting: no invitation is needed
    CHECK(client.read_answer().body == "hello");

    client.send("POST /yes HTTP/1.1\r\nHost: h\r\nExpect: 100-Continue\r\nTransfer-Encoding: chunked\r\n\r\n");
    CHECK(client.read_answer().status == 100);
    client.send("2\r\nok\r\n0\r\n\r\n");
    CHECK(client.read_answer().body == "ok");

    client.send(head("/no", 5));
    CHECK(client.read_answer().status == 401);
    CHECK(client.is_closed());

    RawClient greedy(under_test.port());
    greedy.send(head("/yes", 1001));
    CHECK(greedy.read_answer().status == 413);
}

TEST_CASE("the parts of an answer are written one after another from where they lie", "[http]") {
    const std::string big = pattern(3'000'000), small = "small";
    EchoServer under_test;
    under_test.handler.on_handle = [&](net::Request, net::ResponseStream&) {
        Response response = answer_of(small);
        response.parts.resize(5000, response.parts.front());  // more than one system call takes
        response.parts.push_back({{}, nullptr});
        for (const std::string* text : {&big, &small})
            response.parts.push_back({std::as_bytes(std::span(*text)), nullptr});
        return response;
    };
    RawClient client(under_test.port());
    client.send(get("/"));
    std::string expected;
    for (int i = 0; i < 5000; ++i)
        expected += small;
    CHECK((client.read_answer().body == expected + big + small));
}

TEST_CASE("a client that goes away in the middle of its body costs nothing", "[http]") {
    EchoServer under_test;
    for (const bool reset : {false, true}) {
        RawClient client(under_test.port());
        client.send("POST /p HTTP/1.1\r\nHost: h\r\nContent-Length: 1000\r\n\r\nhalf");
        REQUIRE(eventually([&] { return under_test.server.stats().requests == (reset ? 2U : 1U); }));
        reset ? client.reset() : client.close();
        CHECK(eventually([&] { return under_test.server.stats().connections == 0; }));
    }
}

}  // namespace
}  // namespace shared_tensor::test
