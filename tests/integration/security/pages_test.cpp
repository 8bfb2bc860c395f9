// Web pages of other origins (CORS): nothing, unless the operator named the origin.

#include <catch2/catch_test_macros.hpp>

#include "integration/server/shared_daemon.hpp"
#include "support/daemon.hpp"
#include "support/rpc.hpp"

using namespace shared_tensor::test;

namespace {

constexpr const char* kPage = "https://page.example";

HttpReply preflight(int port, const std::string& origin, const std::string& path = "/jsonrpc") {
    HttpPeer peer(port);
    peer.request("OPTIONS", path, "",
                 {{"Origin", origin},
                  {"Access-Control-Request-Method", "POST"},
                  {"Access-Control-Request-Headers", "authorization, content-type"}});
    return peer.read();
}

}  // namespace

TEST_CASE("a page of an origin that was named may ask and read", "[security][pages]") {
    TemporaryFolder folder;
    const std::string secret(32, 'a');
    const std::string tokens = folder.write("tokens", "a:" + secret + "\n");
    Daemon daemon(with_plugins({"--allowed-origin", kPage, "--token-file", tokens}));
    const HttpReply asked = preflight(daemon.port(), kPage);  // browsers send no token with it
    CHECK(asked.status == 204);
    CHECK(asked.header("Access-Control-Allow-Origin") == kPage);
    CHECK(asked.header("Access-Control-Allow-Methods").find("POST") != std::string::npos);
    CHECK(asked.header("Access-Control-Allow-Headers").find("Authorization") != std::string::npos);
    CHECK(asked.header("Access-Control-Allow-Credentials").empty());
    const HeaderList headers{{"Origin", kPage}, {"Authorization", "Bearer " + secret}};
    for (const char* method : {"server.ping", "no.such.method"}) {
        const HttpReply reply = post(daemon.port(), call_object(method, nullptr).dump(), headers);
        CHECK(reply.status == 200);
        CHECK(reply.header("Access-Control-Allow-Origin") == kPage);
        CHECK(reply.header("Vary") == "Origin");
    }
    const HttpReply rejected = post(daemon.port(), call_object("server.ping", nullptr).dump(), {{"Origin", kPage}});
    CHECK(rejected.status == 401);
    CHECK(rejected.header("Access-Control-Allow-Origin") == kPage);  // so that the page sees why
}

TEST_CASE("a page that was named reads faults of transport, and caches keep pages apart", "[security][pages]") {
    Daemon daemon(with_plugins({"--allowed-origin", kPage, "--max-json-bytes", "1K"}));
    const HttpReply large = post(daemon.port(), std::string(5'000, ' '), {{"Origin", kPage}});
    CHECK(large.status == 413);
    CHECK(large.header("Access-Control-Allow-Origin") == kPage);
    const HttpReply own = post(daemon.port(), call_object("server.ping", nullptr).dump());
    CHECK(own.header("Vary") == "Origin");
    CHECK(own.head.find("Access-Control") == std::string::npos);
}

TEST_CASE("events stream to a page that was named", "[security][pages]") {
    Daemon daemon(with_plugins({"--allowed-origin", kPage}));
    const HttpReply reply = post(daemon.port(), call_object("count", {{"up_to", 3}}).dump(),
                                 {{"Origin", kPage}, {"Accept", "text/event-stream"}});
    CHECK(reply.status == 200);
    CHECK(reply.header("Access-Control-Allow-Origin") == kPage);
}

TEST_CASE("a page of any other origin is rejected, and hears nothing of CORS", "[security][pages]") {
    Daemon daemon(with_plugins({"--allowed-origin", kPage}));
    for (const char* origin : {"https://evil.example", "https://page.example.evil.example", "http://page.example",
                               "https://PAGE.example", "null"}) {
        INFO(origin);
        for (const HttpReply& reply :
             {preflight(daemon.port(), origin),
              post(daemon.port(), call_object("server.ping", nullptr).dump(), {{"Origin", origin}})}) {
            CHECK(reply.status == 403);
            CHECK(reply.head.find("Access-Control") == std::string::npos);
        }
    }
    CHECK(preflight(shared_daemon(), kPage).status == 403);
}

TEST_CASE("all origins at once cannot be named", "[security][pages]") {
    CHECK(run_daemon({"--port", "0", "--allowed-origin", "*"}).code == 1);
}
