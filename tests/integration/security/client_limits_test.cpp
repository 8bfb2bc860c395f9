// What one client may take of the server, so that the others get their share.

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <shared_tensor/client.hpp>

#include "integration/server/shared_daemon.hpp"
#include "support/daemon.hpp"
#include "support/rpc.hpp"

using namespace shared_tensor;
using namespace shared_tensor::test;
using Catch::Matchers::ContainsSubstring;

namespace {

const std::string kA(32, 'a'), kB(32, 'b');
const HeaderList kAsA{{"Authorization", "Bearer " + kA}}, kAsB{{"Authorization", "Bearer " + kB}};

}  // namespace

TEST_CASE("a client that asks more often than it may is held back, and others are not", "[security][limits]") {
    TemporaryFolder folder;
    const std::string tokens = folder.write("tokens", "a:" + kA + "\nb:" + kB + "\n");
    Daemon daemon(with_plugins({"--max-client-requests", "20", "--token-file", tokens}));
    const int port = daemon.port();
    const std::string ping = call_object("server.ping", nullptr).dump();
    HttpReply rejected;
    int answered = 0;
    HttpPeer peer(port);  // one connection: it goes on after a rejection
    for (int i = 0; i < 10'000 && rejected.status == 0; ++i) {
        peer.request("POST", "/jsonrpc", ping, kAsA);
        const HttpReply reply = peer.read();
        if (reply.status == 200) {
            ++answered;
        } else {
            rejected = reply;
        }
    }
    CHECK(answered >= 20);
    CHECK(rejected.status == 429);
    CHECK_FALSE(rejected.header("Retry-After").empty());
    const Json error = Json::parse(rejected.body)["error"];
    CHECK(error["code"] == -32001);
    CHECK(error["data"]["retry_after_ms"] > 0);
    CHECK(call_code(port, "server.ping", nullptr, kAsB) == 0);
    CHECK(eventually([&] {
        peer.request("POST", "/jsonrpc", ping, kAsA);
        return peer.read().status == 200;
    }));
}

TEST_CASE("items of a batch and messages of a WebSocket count as requests", "[security][limits]") {
    TemporaryFolder folder;
    const std::string tokens = folder.write("tokens", "a:" + kA + "\n");
    Daemon daemon(with_plugins({"--max-client-requests", "5", "--token-file", tokens}));
    Json batch = Json::array();
    for (int i = 0; i < 500; ++i)
        batch.push_back(call_object("server.ping", nullptr, i));
    CHECK(post(daemon.port(), batch.dump(), kAsA).status == 200);
    const HttpReply next = post(daemon.port(), call_object("server.ping", nullptr).dump(), kAsA);
    CHECK(next.status == 429);
    CHECK(std::stoi(next.header("Retry-After")) >= 10);  // a hundred seconds' worth, 60 at most
}

TEST_CASE("a client of ours waits and tries again when it asked too often", "[security][limits]") {
    Daemon daemon(with_plugins({"--max-client-requests", "10"}));
    ClientOptions options;
    options.url = "http://127.0.0.1:" + std::to_string(daemon.port());
    options.local_socket = "none";
    options.retry = fixed_delay(std::chrono::milliseconds(1), 1000);
    options.retry_budget.saved = 10'000;
    const Client client(options);
    for (int i = 0; i < 40; ++i)
        REQUIRE(client.call<double>("add", i, 1) == i + 1);
    CHECK(client.statistics().retries > 0);
}

TEST_CASE("one address has so many connections and no more", "[security][limits]") {
    Daemon daemon(with_plugins({"--max-client-connections", "8"}));
    std::vector<HttpPeer> peers;
    for (int i = 0; i < 8; ++i) {
        peers.emplace_back(daemon.port());
        peers.back().request("GET", "/healthz");
        CHECK(peers.back().read().status == 200);
    }
    HttpPeer rejected(daemon.port());
    CHECK(rejected.read().status == 503);
    peers.pop_back();
    CHECK(eventually([&] {
        HttpPeer next(daemon.port());
        next.request("GET", "/healthz");
        return next.read().status == 200;
    }));
}

TEST_CASE("one client's bytes in flight leave room for those of others", "[security][limits]") {
    TemporaryFolder folder;
    const std::string tokens = folder.write("tokens", "a:" + kA + "\nb:" + kB + "\n");
    Daemon daemon(with_plugins({"--token-file", tokens, "--max-bytes-in-flight", "2M"}));
    const std::string large(800'000, ' ');
    const std::string body = call_object("echo", Json::array({1})).dump();
    HttpPeer holds(daemon.port());
    HeaderList headers = kAsA;
    headers.emplace_back("Content-Length", "900000");
    std::string head = "POST /jsonrpc HTTP/1.1\r\nHost: 127.0.0.1:" + std::to_string(daemon.port()) +
                       "\r\nContent-Type: application/json\r\nContent-Length: 900000\r\nAuthorization: Bearer " + kA +
                       "\r\nExpect: 100-continue\r\n\r\n";
    holds.send(head);
    CHECK(holds.read_head().status == 100);  // so its place in the budget is taken soon
    CHECK(eventually([&] { return post(daemon.port(), large + body, kAsA).status == 503; }));
    CHECK(post(daemon.port(), large + body, kAsB).status == 200);
    CHECK(post(daemon.port(), body, kAsA).status == 200);  // what fits goes on
    holds.close();
    CHECK(eventually([&] { return post(daemon.port(), large + body, kAsA).status == 200; }));
}
