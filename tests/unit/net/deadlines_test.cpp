#include <sys/socket.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "support/process.hpp"
#include "test_server.hpp"

namespace shared_tensor::test {
namespace {

using net::ServerOptions;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

const std::string kHead = "POST / HTTP/1.1\r\nHost: here\r\n";

ServerOptions with_time(milliseconds ServerOptions::*which, milliseconds time) {
    auto options = patient_options();
    options.*which = time;
    return options;
}

TEST_CASE("headers that do not become whole in time get 408", "[http][tls]") {
    EitherServer under_test(GENERATE(Over::tcp, Over::tls),
                            with_time(&ServerOptions::header_timeout, milliseconds(300)));
    CHECK(eventually([&] {  // a handshake may be late once
        try {
            const auto client = under_test.raw_client();
            client->send("GET / HTTP/1.1\r\nHost: here\r\nX: never en");
            const auto answer = client->read_answer();
            return answer.status == 408 && answer.body.starts_with("fault: ") && client->is_closed();
        } catch (const std::runtime_error&) {
            return false;
        }
    }));
}

TEST_CASE("a client that sends its headers byte by byte is not given more time for each", "[http]") {
    EchoServer under_test(with_time(&ServerOptions::header_timeout, milliseconds(1000)));
    RawClient client(under_test.port());
    REQUIRE(eventually([&] { return under_test.server.stats().parked == 1; }));
    client.send("GET / HTTP/1.1\r\nX: ");
    const auto start = steady_clock::now();
    const auto trickles = trickle(client);
    CHECK(eventually([&] { return under_test.server.stats().connections == 0; }));
    CHECK(steady_clock::now() - start < std::chrono::seconds(10));
}

TEST_CASE("the time for headers starts with the first byte of each request", "[http]") {
    EchoServer under_test(with_time(&ServerOptions::header_timeout, milliseconds(1000)));
    CHECK(eventually([&] {  // a pause of this thread may be longer than the limit
        RawClient client(under_test.port());
        for (int i = 0; i < 5; ++i) {
            client.send("GET / HT");
            std::this_thread::sleep_for(milliseconds(300));
            client.send("TP/1.1\r\nHost: here\r\n\r\n");
            if (client.read_answer().status != 200) return false;
        }
        return true;
    }));
}

TEST_CASE("a text body that is not whole in time, and a binary one below the least rate or that stalls, get 408",
          "[http]") {
    enum class Body { text, slow, stalls };
    const Body body = GENERATE(Body::text, Body::slow, Body::stalls);
    auto options = with_time(&ServerOptions::body_timeout, milliseconds(100));
    options.min_bytes_per_second = body == Body::slow ? 100'000 : 0;
    EchoServer under_test(options);
    under_test.handler.plan.binary = body != Body::text;
    for (const auto* framing : {"Content-Length: 100000\r\n\r\n12", "Transfer-Encoding: chunked\r\n\r\n10000\r\n12"}) {
        RawClient client(under_test.port());
        client.send(kHead + framing);
        std::jthread trickles;
        if (body != Body::stalls) trickles = trickle(client);
        CHECK(client.read_answer().status == 408);
    }
}

TEST_CASE("a binary body may take its time as long as it moves", "[http]") {
    auto options = with_time(&ServerOptions::body_timeout, milliseconds(1000));
    options.min_bytes_per_second = 0;
    EchoServer under_test(options);
    under_test.handler.plan.binary = true;
    CHECK(eventually([&] {  // a pause of this thread may be longer than the limit
        RawClient client(under_test.port());
        client.send(kHead + "Content-Length: 8\r\n\r\n");
        for (int i = 0; i < 8; ++i) {
            std::this_thread::sleep_for(milliseconds(200));
            client.send("x");
        }
        return client.read_answer().body == "xxxxxxxx";
    }));
}

TEST_CASE("a client that does not read its answer is cut off, and what it left unread is thrown away", "[http][tls]") {
    const std::string much(32 << 20, 'x');
    EitherServer under_test(GENERATE(Over::tcp, Over::tls),
                            with_time(&ServerOptions::write_timeout, milliseconds(300)));
    under_test.handler.on_handle = [&](net::Request, net::ResponseStream&) { return answer_of(much); };
    const auto client = under_test.raw_client();
    client->send(get("/"));
    REQUIRE(eventually([&] { return under_test.server.stats().requests == 1; }));
    CHECK(eventually([&] { return under_test.server.stats().connections == 0; }));
    CHECK(client->read_to_end().size() < much.size());
}

TEST_CASE("a client that reads below the least rate is cut off", "[http]") {
    auto options = with_time(&ServerOptions::write_timeout, milliseconds(200));
    options.min_bytes_per_second = std::size_t{1} << 30;
    const std::string much(64 << 20, 'x');
    EchoServer under_test(options);
    under_test.handler.on_handle = [&](net::Request, net::ResponseStream&) { return answer_of(much); };
    RawClient client(under_test.port());
    client.send(get("/"));
    REQUIRE(eventually([&] { return under_test.server.stats().requests == 1; }));
    CHECK(eventually([&] {
        char some[4096];
        ::recv(client.fd(), some, sizeof some, 0);
        return under_test.server.stats().connections == 0;
    }));
}

TEST_CASE("idle, slow, half-open and non-reading clients by the hundred hold no thread and stop nobody",
          "[http][tls]") {
    allow_many_descriptors();
    const bool has_tls = GENERATE(false, true);
    EitherServer under_test(has_tls ? Over::tls : Over::tcp, patient_options());
    std::vector<std::unique_ptr<RawClient>> clients;
    const auto add = [&](std::string_view bytes) -> RawClient& {
        clients.push_back(under_test.raw_client());
        clients.back()->send(bytes);
        return *clients.back();
    };
    const std::string hello = RawTls(RawClient(UniqueFd())).hello();
    const int rounds = has_tls ? 25 : 150;
    for (int i = 0; i < rounds; ++i) {
        add(get("/")).read_answer();
        add("GET / HTTP/1.1\r\nHo");
        add("");
        add(get("/"));  // answered, never read
        if (!has_tls) continue;
        clients.push_back(std::make_unique<RawClient>(under_test.port()));
        clients.back()->send(hello.substr(0, 100));
        for (const std::size_t size : {1, 5, 20}) {  // of a record
            RawTls& tls = static_cast<SafeClient&>(add("")).tls();
            tls.socket().send(tls.seal(get("/")).substr(0, size));
        }
    }
    REQUIRE(eventually([&] { return under_test.server.stats().parked == clients.size(); }));
    CHECK(eventually([&] { return under_test.server.stats().threads < 100; }));  // idle ones end after 10 s
    const auto start = steady_clock::now();
    CHECK(add(post("/", "alive")).read_answer().body == "alive");
    CHECK(steady_clock::now() - start < std::chrono::seconds(10));
    clients.clear();
    CHECK(eventually([&] { return under_test.server.stats().connections == 0; }));
}

}  // namespace
}  // namespace shared_tensor::test
