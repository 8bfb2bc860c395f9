// What one client may take of the server, so that the others get their share.

#include <catch2/catch_test_macros.hpp>

#include <shared_tensor/client.hpp>

#include "integration/server/shared_daemon.hpp"

using namespace shared_tensor;
using namespace shared_tensor::test;

TEST_CASE("a client that asks more often than it may is held back, and others are not", "[security][limits]") {
    const TokenDaemon daemon(token("a") + token("b"), {"--max-client-requests", "20"});
    HttpPeer peer(daemon.port());  // one connection: it goes on after a rejection
    const auto ping = [&] {
        peer.request("POST", "/jsonrpc", call_object("server.ping", nullptr).dump(), bearer('a'));
        return peer.read();
    };
    int answered = 0;
    HttpReply reply = ping();
    for (; reply.status == 200 && answered < 10'000; reply = ping())
        ++answered;
    CHECK(answered >= 20);
    CHECK(reply.status == 429);
    CHECK_FALSE(reply.header("Retry-After").empty());
    const Json error = Json::parse(reply.body)["error"];
    CHECK(error["code"] == -32001);
    CHECK(error["data"]["retry_after_ms"] > 0);
    CHECK(daemon.code("server.ping", nullptr, bearer('b')) == 0);
    CHECK(eventually([&] { return ping().status == 200; }));
}

TEST_CASE("items of a batch and messages of a WebSocket count as requests", "[security][limits]") {
    const OwnDaemon daemon({"--max-client-requests", "5"});
    const Json batch(500, call_object("server.ping", nullptr));
    CHECK(daemon.post(batch.dump()).status == 200);
    const HttpReply next = daemon.post(call_object("server.ping", nullptr).dump());
    CHECK(next.status == 429);
    CHECK(std::stoi(next.header("Retry-After")) >= 10);  // a hundred seconds' worth, 60 at most
}

TEST_CASE("a client of ours waits and tries again when it asked too often", "[security][limits]") {
    const OwnDaemon daemon({"--max-client-requests", "10"});
    ClientOptions options;
    options.url = daemon.url();
    options.local_socket = "none";
    options.retry = fixed_delay(std::chrono::milliseconds(1), 1000);
    options.retry_budget.saved = 10'000;
    const Client client(options);
    for (int i = 0; i < 40; ++i)
        REQUIRE(client.call<double>("add", i, 1) == i + 1);
    CHECK(client.statistics().retries > 0);
}

TEST_CASE("one address has so many connections and no more", "[security][limits]") {
    const OwnDaemon daemon({"--max-client-connections", "8"});
    std::vector<HttpPeer> peers;
    for (int i = 0; i < 8; ++i) {
        peers.emplace_back(daemon.port()).request("GET", "/healthz");
        CHECK(peers.back().read().status == 200);
    }
    CHECK(HttpPeer(daemon.port()).read().status == 503);
    peers.pop_back();
    CHECK(eventually([&] { return daemon.get("/healthz").status == 200; }));
}

TEST_CASE("one client's bytes in flight leave room for those of others", "[security][limits]") {
    const TokenDaemon daemon(token("a") + token("b"), {"--max-bytes-in-flight", "2M"});
    const std::string small = call_object("echo", Json::array({1})).dump(), large = std::string(800'000, ' ') + small;
    const auto status = [&](const std::string& body, char who) { return daemon.post(body, bearer(who)).status; };
    const std::string head = "POST /jsonrpc HTTP/1.1\r\nHost: 127.0.0.1:" + std::to_string(daemon.port()) +
                             "\r\nContent-Type: application/json\r\nContent-Length: 900000\r\nAuthorization: Bearer " +
                             secret_of('a') + "\r\nExpect: 100-continue\r\n\r\n";
    HttpPeer holds(daemon.port());
    holds.send(head);
    CHECK(holds.read_head().status == 100);  // it has its place in the budget
    CHECK(status(large, 'a') == 503);
    CHECK(status(large, 'b') == 200);
    CHECK(status(small, 'a') == 200);  // what fits goes on
    holds.close();
    CHECK(eventually([&] { return status(large, 'a') == 200; }));
}
