#include <catch2/catch_test_macros.hpp>

#include "integration/server/shared_daemon.hpp"

using namespace shared_tensor::test;

namespace {

bool rejects(int port) { return call_code(port, "subtract", {3, 1}) == -32009; }

}  // namespace

TEST_CASE("SIGTERM: calls in flight are answered, new ones are rejected, and the daemon ends with 0", "[server]") {
    Daemon daemon(with_plugins({"--drain-time", "6s"}));
    const int port = daemon.port();
    const std::string name = fresh_name();
    PendingCall running(port, "hold", {name});
    REQUIRE(until(port, name, "started", 1));
    const Json task = call(port, "task.submit", {"hold", {name}});
    PendingCall result(port, "task.result", {{"id", task["id"]}, {"timeout_ms", 20'000}});
    REQUIRE(until(port, name, "started", 2));
    daemon.child().signal(SIGTERM);
    REQUIRE(eventually([&] { return rejects(port); }));

    const HttpReply rejected = post(port, call_object("hold", {name}).dump());
    CHECK(rejected.status == 503);
    CHECK_FALSE(rejected.header("Retry-After").empty());
    CHECK(call_code(port, "task.submit", {"hold", {name}}) == -32009);
    HttpPeer peer(port);
    peer.request("GET", "/readyz");
    CHECK(peer.read().status == 503);
    peer.request("GET", "/healthz");
    CHECK(peer.read().status == 200);

    // Functions are rejected now, inline ones too: the held ones end by the task's cancellation and their deadline.
    CHECK(call(port, "task.cancel", {task["id"]})["state"] == "cancelled");
    CHECK(code_of(result.response()) == -32004);
    CHECK_FALSE(daemon.child().has_ended());
    CHECK(code_of(running.response()) == -32009);  // when the drain time is over
    CHECK(daemon.child().wait() == 0);
}

TEST_CASE("a call that ends within the drain time is answered with its result", "[server]") {
    Daemon daemon(with_plugins());
    PendingCall running(daemon.port(), "sleep", {1});
    const auto busy = [&] { return call(daemon.port(), "server.info")["totals"]["workers"]["busy"] == 1; };
    REQUIRE(eventually(busy));
    daemon.child().signal(SIGTERM);
    CHECK(running.response().contains("result"));
    CHECK(daemon.child().wait() == 0);
}

TEST_CASE("a function that ignores its cancellation does not hold the daemon up", "[server]") {
    Daemon daemon(with_plugins({"--drain-time", "200ms"}));
    const std::string name = fresh_name();
    PendingCall running(daemon.port(), "hold_deaf", {name});
    REQUIRE(until(daemon.port(), name, "started", 1));
    daemon.child().signal(SIGTERM);
    const HttpReply reply = running.reply();
    CHECK(reply.status == 503);
    CHECK(code_of(Json::parse(reply.body)) == -32009);
    CHECK(daemon.child().wait() == 0);
}

TEST_CASE("a second SIGTERM ends the daemon at once", "[server]") {
    Daemon daemon(with_plugins({"--drain-time", "1h"}));
    const std::string name = fresh_name();
    PendingCall running(daemon.port(), "hold_deaf", {name});
    REQUIRE(until(daemon.port(), name, "started", 1));
    daemon.child().signal(SIGTERM);
    REQUIRE(eventually([&] { return rejects(daemon.port()); }));
    daemon.child().signal(SIGTERM);
    CHECK(daemon.child().wait() == 1);
}

TEST_CASE("SIGINT ends it as SIGTERM does, SIGHUP does not", "[server]") {
    Daemon daemon;
    daemon.child().signal(SIGHUP);
    CHECK(call(daemon.port(), "server.ping").contains("epoch"));
    daemon.child().signal(SIGINT);
    CHECK(daemon.child().wait() == 0);
}

TEST_CASE("an idle daemon with idle connections ends at once", "[server]") {
    Daemon daemon(Words{"--drain-time", "1h"});
    HttpPeer idle(daemon.port());
    HttpPeer used(daemon.port());
    used.request("GET", "/healthz");
    CHECK(used.read().status == 200);
    CHECK(daemon.stop() == 0);
    CHECK(idle.closed_by_peer());
}
