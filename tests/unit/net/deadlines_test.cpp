#include <sys/socket.h>

#include <catch2/catch_test_macros.hpp>

#include "raw_client.hpp"
#include "support/descriptors.hpp"
#include "test_server.hpp"

namespace shared_tensor::test {
namespace {

using net::Response;
using std::chrono::milliseconds;

constexpr milliseconds kSoon{60};
constexpr milliseconds kNever{600'000};

/// No limit can be the one that a test did not mean.
net::ServerOptions patient_options() {
    net::ServerOptions options;
    options.header_timeout = options.body_timeout = kNever;
    options.idle_timeout = options.write_timeout = kNever;
    return options;
}

TEST_CASE("headers that do not become whole in time get 408", "[http]") {
    auto options = patient_options();
    options.header_timeout = kSoon;
    TestServer under_test(options);
    under_test.start();
    RawClient client(under_test.port());
    client.send("GET / HTTP/1.1\r\nHost: here\r\nX: never en");
    const auto answer = client.read_answer();
    CHECK(answer.status == 408);
    CHECK(answer.body.starts_with("fault: "));
    CHECK(client.is_closed());
}

TEST_CASE("a client that sends its headers byte by byte is not given more time for each", "[http]") {
    auto options = patient_options();
    options.header_timeout = std::chrono::seconds(1);
    TestServer under_test(options);
    under_test.start();
    RawClient client(under_test.port());
    client.send("GET / HTTP/1.1\r\nX: ");
    REQUIRE(eventually([&] { return under_test.server.stats().parked == 1; }));
    const auto start = std::chrono::steady_clock::now();
    while (client.send("x") && under_test.server.stats().connections > 0)
        std::this_thread::sleep_for(milliseconds(2));
    CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(10));
}

TEST_CASE("the time for headers starts with the first byte of each request", "[http]") {
    auto options = patient_options();
    options.header_timeout = milliseconds(1000);
    TestServer under_test(options);
    under_test.start();
    RawClient client(under_test.port());
    for (int i = 0; i < 5; ++i) {
        client.send("GET / HT");
        std::this_thread::sleep_for(milliseconds(300));
        client.send("TP/1.1\r\nHost: here\r\n\r\n");
        REQUIRE(client.read_answer().status == 200);
    }
}

TEST_CASE("a text body that is not whole in time gets 408, however steadily it trickles", "[http]") {
    auto options = patient_options();
    options.body_timeout = kSoon;
    TestServer under_test(options);
    under_test.start();
    RawClient client(under_test.port());
    client.send("POST / HTTP/1.1\r\nHost: here\r\nContent-Length: 100000\r\n\r\n");
    std::jthread trickle([&](const std::stop_token& stop) {
        while (!stop.stop_requested() && client.send("x"))
            std::this_thread::sleep_for(milliseconds(5));
    });
    CHECK(client.read_answer().status == 408);
}

TEST_CASE("a binary body may take its time as long as it moves", "[http]") {
    auto options = patient_options();
    options.body_timeout = milliseconds(1);
    options.body_timeout = milliseconds(1000);
    options.min_bytes_per_second = 0;
    TestServer under_test(options);
    under_test.handler.plan.binary = true;
    under_test.start();
    RawClient client(under_test.port());
    client.send("POST / HTTP/1.1\r\nHost: here\r\nContent-Length: 8\r\n\r\n");
    for (int i = 0; i < 8; ++i) {
        std::this_thread::sleep_for(milliseconds(200));
        client.send("x");
    }
    CHECK(client.read_answer().body == "xxxxxxxx");
}

TEST_CASE("a binary body that stalls gets 408", "[http]") {
    auto options = patient_options();
    options.body_timeout = kSoon;
    TestServer under_test(options);
    under_test.handler.plan.binary = true;
    under_test.start();
    for (const auto* framing : {"Content-Length: 8\r\n\r\n12", "Transfer-Encoding: chunked\r\n\r\n8\r\n12"}) {
        RawClient client(under_test.port());
        client.send("POST / HTTP/1.1\r\nHost: here\r\n" + std::string(framing));
        CHECK(client.read_answer().status == 408);
        CHECK(client.is_closed());
    }
}

TEST_CASE("a binary body that trickles below the least rate gets 408", "[http]") {
    auto options = patient_options();
    options.body_timeout = milliseconds(100);
    options.min_bytes_per_second = 100'000;
    TestServer under_test(options);
    under_test.handler.plan.binary = true;
    under_test.start();
    RawClient client(under_test.port());
    client.send("POST / HTTP/1.1\r\nHost: here\r\nContent-Length: 100000\r\n\r\n");
    std::jthread trickle([&](const std::stop_token& stop) {
        while (!stop.stop_requested() && client.send("x"))
            std::this_thread::sleep_for(milliseconds(5));
    });
    CHECK(client.read_answer().status == 408);
}

TEST_CASE("an idle connection is closed without a word", "[http]") {
    auto options = patient_options();
    options.idle_timeout = milliseconds(500);
    TestServer under_test(options);
    under_test.start();
    RawClient silent(under_test.port());
    CHECK(silent.is_closed());
    RawClient used(under_test.port());
    used.send(get("/"));
    CHECK(used.read_answer().status == 200);
    CHECK(used.is_closed());
}

TEST_CASE("a client that does not read its answer is cut off, and what it left unread is thrown away", "[http]") {
    auto options = patient_options();
    options.write_timeout = kSoon;
    const std::string much(32 << 20, 'x');
    TestServer under_test(options);
    under_test.handler.on_handle = [&](net::Request, net::ResponseStream&) {
        Response response;
        response.parts.push_back({std::as_bytes(std::span(much)), nullptr});
        return response;
    };
    under_test.start();
    RawClient client(under_test.port());
    client.send(get("/"));
    REQUIRE(eventually([&] { return under_test.server.stats().requests == 1; }));
    CHECK(eventually([&] { return under_test.server.stats().connections == 0; }));
    CHECK(client.read_to_end().size() < much.size());
}

TEST_CASE("a client that reads below the least rate is cut off", "[http]") {
    auto options = patient_options();
    options.write_timeout = milliseconds(200);
    options.min_bytes_per_second = std::size_t{1} << 30;
    const std::string much(64 << 20, 'x');
    TestServer under_test(options);
    under_test.handler.on_handle = [&](net::Request, net::ResponseStream&) {
        Response response;
        response.parts.push_back({std::as_bytes(std::span(much)), nullptr});
        return response;
    };
    under_test.start();
    RawClient client(under_test.port());
    client.send(get("/"));
    REQUIRE(eventually([&] { return under_test.server.stats().requests == 1; }));
    char some[4096];
    const SteadyTime until = patience();
    while (under_test.server.stats().connections > 0 && std::chrono::steady_clock::now() < until) {
        ::recv(client.fd(), some, sizeof some, 0);
        std::this_thread::sleep_for(milliseconds(1));
    }
    CHECK(under_test.server.stats().connections == 0);
}

TEST_CASE("idle, slow, half-open and non-reading clients by the hundred hold no thread and stop nobody", "[http]") {
    auto options = patient_options();
    options.header_timeout = std::chrono::seconds(20);
    allow_many_descriptors();
    TestServer under_test(options);
    under_test.start();
    std::vector<RawClient> clients;
    for (int i = 0; i < 150; ++i) {
        RawClient& idle = clients.emplace_back(under_test.port());
        idle.send(get("/"));
        idle.read_answer();
        clients.emplace_back(under_test.port()).send("GET / HTTP/1.1\r\nHo");
        clients.emplace_back(under_test.port());
        clients.emplace_back(under_test.port()).send(get("/"));  // answered, never read
    }
    REQUIRE(eventually([&] { return under_test.server.stats().parked == 600; }));
    CHECK(under_test.server.stats().threads < 100);
    const auto start = std::chrono::steady_clock::now();
    RawClient fresh(under_test.port());
    fresh.send(post("/", "alive"));
    CHECK(fresh.read_answer().body == "alive");
    CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(10));
}

}  // namespace
}  // namespace shared_tensor::test
