#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "support/process.hpp"
#include "test_server.hpp"
#include "web_socket/web_socket_peer.hpp"

// Connections that idle, wait and end, and handlers that hear of it.

namespace shared_tensor::test {
namespace {

using net::Response;
using std::chrono::milliseconds;

TEST_CASE("an idle kept-alive connection holds no thread", "[http][tls]") {
    const bool has_tls = GENERATE(false, true);
    const std::size_t count = has_tls ? 50 : 300;
    EitherServer under_test(has_tls ? Over::tls : Over::tcp);
    std::vector<std::unique_ptr<RawClient>> clients;
    for (std::size_t i = 0; i < count; ++i)
        clients.push_back(under_test.raw_client());
    for (const auto* body : {"once", "again"}) {
        for (auto& client : clients)
            client->send(post("/", body));
        for (auto& client : clients)
            REQUIRE(client->read_answer().body == body);
        CHECK(eventually([&] { return under_test.server.stats().parked == count; }));
    }
    CHECK(eventually([&] { return under_test.server.stats().threads < count; }));  // idle ones end after 10 s
}

TEST_CASE("as many requests as there are connections wait at once, and others are answered meanwhile", "[http]") {
    Event release;
    EchoServer under_test;
    under_test.handler.on_handle = [&](net::Request request, net::ResponseStream&) {
        if (request.head.path == "/wait") release.wait();
        return Response::json(200, "done");
    };
    std::vector<RawClient> waiting;
    for (int i = 0; i < 100; ++i)
        waiting.emplace_back(under_test.port()).send(get("/wait"));
    REQUIRE(eventually([&] { return under_test.server.stats().requests == 100; }));
    CHECK(under_test.server.stats().threads >= 100);
    RawClient quick(under_test.port());
    quick.send(get("/"));
    CHECK(quick.read_answer().body == "done");
    release.set();
    for (auto& client : waiting)
        CHECK(client.read_answer().body == "done");
}

TEST_CASE("with spin zero a connection is parked after every answer and works all the same", "[http]") {
    net::ServerOptions options;
    options.spin = std::chrono::microseconds(0);
    EchoServer under_test(options);
    RawClient client(under_test.port());
    for (int i = 0; i < 200; ++i) {
        client.send(post("/", std::to_string(i)));
        REQUIRE(client.read_answer().body == std::to_string(i));
    }
}

TEST_CASE("a storm of clients that leave, wherever they are, leaves nothing behind", "[http][tls]") {
    const bool has_tls = GENERATE(false, true);
    EitherServer under_test(has_tls ? Over::tls : Over::tcp);
    std::atomic<int> told{0};
    under_test.handler.on_handle = [&](net::Request request, net::ResponseStream& response_stream) {
        const std::stop_callback callback(response_stream.client_gone(), [&told] { ++told; });
        return Response::json(200, std::string(request.text()));
    };
    const auto serves = [&] {
        const auto client = under_test.raw_client();
        client->send(post("/", "calm"));
        return client->read_answer().body == "calm";
    };
    REQUIRE(serves());
    REQUIRE(eventually([&] { return under_test.server.stats().connections == 0; }));
    const std::size_t before = open_descriptors();
    const std::string hello = RawTls(RawClient(UniqueFd())).hello();
    const std::string whole = get("/"), body = "POST /p HTTP/1.1\r\nHost: h\r\nContent-Length: 1000\r\n\r\nhalf";
    const int rounds = has_tls ? 100 : 400;
    for (int i = 0; i < rounds; ++i) {
        for (const std::string& bytes : {std::string(), std::string("GET / HT"), body, whole, whole + whole}) {
            const auto client = under_test.raw_client();
            client->send(bytes);
            if (bytes == whole && i % 2 == 0) client->read_answer();
            if (i % 3 == 0) client->reset();
        }
        RawClient half(under_test.port());
        half.send(hello.substr(0, i % 2 == 0 ? 100 : hello.size()));
        if (has_tls) {
            SafeClient record(RawClient(under_test.port()));
            record.tls().socket().send(record.tls().seal(whole).substr(0, 30));
        }
    }
    CHECK(eventually([&] { return under_test.server.stats().connections == 0; }));
    CHECK(eventually([&] { return open_descriptors() <= before; }));
    CHECK(told <= 3 * rounds);
    CHECK(serves());
}

TEST_CASE("drain takes nobody in, closes idle connections and says goodbye with the current answer", "[http][tls]") {
    Event entered, release;
    EitherServer under_test(GENERATE(Over::tcp, Over::tls));
    under_test.handler.on_handle = [&](net::Request request, net::ResponseStream&) {
        if (request.head.path == "/wait") {
            entered.set();
            release.wait();
        }
        return Response::json(200, "finished");
    };
    RawClient silent(under_test.port());
    const auto idle = under_test.raw_client(), busy = under_test.raw_client();
    idle->send(get("/"));
    REQUIRE(idle->read_answer().body == "finished");
    busy->send(get("/wait"));
    REQUIRE(entered.wait());
    under_test.server.drain();
    CHECK_THROWS(RawClient(under_test.port()));
    CHECK(silent.is_closed());
    CHECK(idle->is_closed());
    release.set();
    const auto answer = busy->read_answer();
    CHECK(answer.body == "finished");
    CHECK(answer.has("Connection: close"));
    CHECK(busy->is_closed());
    const auto start = std::chrono::steady_clock::now();
    under_test.server.stop(std::chrono::seconds(30));
    CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(9));
    CHECK(under_test.server.stats().connections == 0);
}

TEST_CASE("stop waits for requests in flight, but no longer than its grace", "[http]") {
    Event entered, gone;
    EchoServer under_test;
    under_test.handler.on_handle = [&](net::Request, net::ResponseStream& response_stream) {
        const std::stop_callback told(response_stream.client_gone(), [&] { gone.set(); });
        entered.set();
        gone.wait();  // a handler that only ends when its connection is cut
        return Response::json(200, "too late");
    };
    RawClient client(under_test.port());
    client.send(get("/"));
    REQUIRE(entered.wait());
    under_test.server.stop(milliseconds(20));
    CHECK(gone.wait());
    CHECK(gone.count() == 1);
    CHECK(client.read_to_end().empty());
}

TEST_CASE("a server can be destroyed whatever its clients are at", "[http][tls]") {
    const bool has_tls = GENERATE(false, true);
    for (int i = 0; i < 10; ++i) {
        auto under_test = std::make_unique<EitherServer>(has_tls ? Over::tls : Over::tcp);
        std::vector<RawClient> half;
        std::vector<std::unique_ptr<RawClient>> clients;
        for (int k = 0; k < 10; ++k) {
            if (k % 2 == 0) half.emplace_back(under_test->port()).send(RawTls(RawClient(UniqueFd())).hello());
            clients.push_back(under_test->raw_client());
            if (k % 4 != 0) clients.back()->send(post("/", "x") + post("/", "y"));
        }
        under_test.reset();
        for (auto& client : clients)
            client->read_to_end();
    }
}

TEST_CASE("the counts of a server add up, and one that was never started ends quietly", "[http]") {
    {
        TestServer never;
        CHECK(never.port() == 0);
        never.server.drain();
        never.server.stop(milliseconds(0));
    }
    EchoServer under_test;
    RawClient client(under_test.port());
    const std::string request = post("/", "12345");
    client.send(request);
    const auto answer = client.read_answer();
    REQUIRE(eventually([&] { return under_test.server.stats().parked == 1; }));
    const auto stats = under_test.server.stats();
    CHECK(stats.accepted == 1);
    CHECK(stats.rejected == 0);
    CHECK(stats.requests == 1);
    CHECK(stats.connections == 1);
    CHECK(stats.bytes_in == request.size());
    CHECK(stats.bytes_out == answer.head.size() + answer.body.size());
}

// Clients that are gone.

TEST_CASE("a handler that waits hears when its client goes away, also before it asks, and only of its own request",
          "[http]") {
    const bool reset = GENERATE(false, true), asks_late = GENERATE(false, true);
    Event entered, closed, gone;
    std::atomic<int> first_gone{0};
    EchoServer under_test;
    under_test.handler.on_handle = [&](net::Request request, net::ResponseStream& response_stream) {
        if (request.head.path == "/first") {
            const std::stop_callback told(response_stream.client_gone(), [&] { ++first_gone; });
            return Response::json(200, "");
        }
        const auto tells = [&] { gone.set(); };
        std::optional<std::stop_callback<decltype(tells)>> told;
        if (!asks_late) told.emplace(response_stream.client_gone(), tells);
        entered.set();
        closed.wait();
        if (asks_late) told.emplace(response_stream.client_gone(), tells);
        gone.wait();
        return Response::json(200, "");
    };
    RawClient client(under_test.port());
    client.send(get("/first") + get("/second"));
    REQUIRE(entered.wait());
    reset ? client.reset() : client.close();
    closed.set();
    CHECK(gone.wait());
    CHECK(eventually([&] { return under_test.server.stats().connections == 0; }));
    CHECK(gone.count() == 1);
    CHECK(first_gone == 0);
}

TEST_CASE("more bytes of the client do not count as going away", "[http]") {
    Event entered, release;
    std::atomic<bool> gone{false};
    EchoServer under_test;
    under_test.handler.on_handle = [&](net::Request, net::ResponseStream& response_stream) {
        const std::stop_callback told(response_stream.client_gone(), [&] { gone = true; });
        entered.set();
        release.wait(entered.count());
        return Response::json(200, "");
    };
    RawClient client(under_test.port());
    client.send(get("/"));
    REQUIRE(entered.wait());
    client.send(get("/"));
    release.set();
    CHECK(client.read_answer().status == 200);
    release.set();
    CHECK(client.read_answer().status == 200);
    CHECK_FALSE(gone);
}

}  // namespace
}  // namespace shared_tensor::test
