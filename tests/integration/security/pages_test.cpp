// Web pages of other origins (CORS): nothing, unless the operator named the origin.

#include <catch2/catch_test_macros.hpp>

#include "integration/server/shared_daemon.hpp"

using namespace shared_tensor::test;

namespace {

constexpr const char* kPage = "https://page.example";

HttpReply preflight(int port, const std::string& origin) {
    return http_request(port, "OPTIONS", "/jsonrpc", "",
                        {{"Origin", origin},
                         {"Access-Control-Request-Method", "POST"},
                         {"Access-Control-Request-Headers", "authorization, content-type"}});
}
HttpReply ping(int port, const HeaderList& headers) {
    return post(port, call_object("server.ping", nullptr).dump(), headers);
}

}  // namespace

TEST_CASE("a page of an origin that was named may ask and read", "[security][pages]") {
    const TokenDaemon daemon(token("a"), {"--allowed-origin", kPage});
    const HttpReply asked = preflight(daemon.port(), kPage);  // browsers send no token with it
    CHECK(asked.status == 204);
    CHECK(asked.header("Access-Control-Allow-Origin") == kPage);
    CHECK(asked.header("Access-Control-Allow-Methods").find("POST") != std::string::npos);
    CHECK(asked.header("Access-Control-Allow-Headers").find("Authorization") != std::string::npos);
    CHECK(asked.header("Access-Control-Allow-Credentials").empty());
    HeaderList headers = bearer('a');
    headers.emplace_back("Origin", kPage);
    for (const char* method : {"server.ping", "no.such.method"}) {
        const HttpReply reply = daemon.post(call_object(method, nullptr).dump(), headers);
        CHECK(reply.status == 200);
        CHECK(reply.header("Access-Control-Allow-Origin") == kPage);
        CHECK(reply.header("Vary") == "Origin");
    }
    const HttpReply rejected = ping(daemon.port(), {{"Origin", kPage}});
    CHECK(rejected.status == 401);
    CHECK(rejected.header("Access-Control-Allow-Origin") == kPage);  // so that the page sees why
}

TEST_CASE("a page that was named reads faults of transport and events, and caches keep pages apart",
          "[security][pages]") {
    const OwnDaemon daemon({"--allowed-origin", kPage, "--max-json-bytes", "1K"});
    const HttpReply large = daemon.post(std::string(5'000, ' '), {{"Origin", kPage}});
    CHECK(large.status == 413);
    CHECK(large.header("Access-Control-Allow-Origin") == kPage);
    const HttpReply events =
        daemon.post(call_object("count", {{"up_to", 3}}).dump(), {{"Origin", kPage}, {"Accept", "text/event-stream"}});
    CHECK(events.status == 200);
    CHECK(events.header("Access-Control-Allow-Origin") == kPage);
    const HttpReply own = ping(daemon.port(), {});
    CHECK(own.header("Vary") == "Origin");
    CHECK(own.head.find("Access-Control") == std::string::npos);
}

TEST_CASE("a page of any other origin is rejected, and hears nothing of CORS", "[security][pages]") {
    const OwnDaemon daemon({"--allowed-origin", kPage});
    const auto is_rejected = [](int port, const std::string& origin) {
        INFO(origin);
        const HttpReply asked = preflight(port, origin), used = ping(port, {{"Origin", origin}});
        for (const HttpReply& reply : {asked, used}) {
            CHECK(reply.status == 403);
            CHECK(reply.head.find("Access-Control") == std::string::npos);
        }
        CHECK(code_of(Json::parse(used.body)) == -32007);
        CHECK(Json::parse(used.body)["id"] == nullptr);
    };
    for (const char* origin : {"https://evil.example", "https://page.example.evil.example", "http://page.example",
                               "https://PAGE.example", "null"})
        is_rejected(daemon.port(), origin);
    is_rejected(shared_daemon(), kPage);
    const OwnDaemon without_pages({"--no-dashboard"});
    is_rejected(without_pages.port(), "http://127.0.0.1:" + std::to_string(without_pages.port()));
}

TEST_CASE("a page of the daemon itself needs no CORS, and is admitted", "[security][pages]") {
    const int port = shared_daemon();
    const std::string origin = "http://127.0.0.1:" + std::to_string(port);
    const HttpReply asked = preflight(port, origin), used = ping(port, {{"Origin", origin}});
    CHECK(used.status == 200);
    CHECK(asked.status == 405);  // a browser asks only for pages of other origins
    for (const HttpReply& reply : {asked, used})
        CHECK(reply.head.find("Access-Control") == std::string::npos);
}
