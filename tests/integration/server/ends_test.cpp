// How a call ends that does not come to its end: deadline, vanished client, full queue.

#include <catch2/catch_test_macros.hpp>

#include "integration/server/shared_daemon.hpp"

using namespace shared_tensor::test;

TEST_CASE("a deadline answers -32002 with status 200, and the function sees that", "[server]") {
    const int port = shared_daemon();
    const std::string name = fresh_name();
    HttpReply reply;
    SECTION("of the header") { reply = post(port, call_object("hold", {name}).dump(), {{"Request-Timeout", "200"}}); }
    SECTION("of the request's meta") {
        Json request = call_object("hold", {name});
        request["meta"] = {{"timeout_ms", 200}};
        reply = post(port, request.dump(), {{"Request-Timeout", "60000"}});
    }
    SECTION("of the function") { reply = post(port, call_object("hold_briefly", {name}).dump()); }
    CHECK(reply.status == 200);
    CHECK(code_of(Json::parse(reply.body)) == -32002);
    if (runs(port, name, "started") == 1) CHECK(until(port, name, "cancelled", 1));
}

TEST_CASE("a deadline is kept even when the function ignores it", "[server]") {
    const int port = shared_daemon();
    const std::string name = fresh_name();
    CHECK(call_code(port, "hold_deaf", {name}, {{"Request-Timeout", "100"}}) == -32002);
    call(port, "release", {name});
}

TEST_CASE("a client that hangs up cancels its call", "[server]") {
    const int port = shared_daemon();
    const std::string name = fresh_name();
    PendingCall pending(port, "hold", {name});
    REQUIRE(until(port, name, "started", 1));
    pending.hang_up();
    CHECK(until(port, name, "cancelled", 1));
}

TEST_CASE("a client that hangs up cancels all calls of its batch", "[server]") {
    const int port = shared_daemon();
    const std::string name = fresh_name();
    HttpPeer peer(port);
    peer.request("POST", "/jsonrpc",
                 Json::array({call_object("hold", {name}, 1), call_object("hold", {name}, 2)}).dump());
    REQUIRE(until(port, name, "started", 2));
    peer.close();
    CHECK(until(port, name, "cancelled", 2));
}

TEST_CASE("a notification goes on when its client hangs up", "[server]") {
    const int port = shared_daemon();
    const std::string name = fresh_name();
    {
        HttpPeer peer(port);
        peer.request("POST", "/jsonrpc", R"({"jsonrpc":"2.0","method":"hold","params":[")" + name + "\"]}");
        CHECK(peer.read().status == 204);
    }
    REQUIRE(until(port, name, "started", 1));
    call(port, "release", {name});
    REQUIRE(until(port, name, "ended", 1));
    CHECK(runs(port, name, "cancelled") == 0);
}

TEST_CASE("a notification ends at its deadline", "[server]") {
    const int port = shared_daemon();
    const std::string name = fresh_name();
    CHECK(post(port, R"({"jsonrpc":"2.0","method":"hold","params":[")" + name + "\"]}", {{"Request-Timeout", "2000"}})
              .status == 204);
    CHECK(until(port, name, "cancelled", 1));
}

TEST_CASE("a full queue rejects at once with -32001, 503 and Retry-After", "[server]") {
    Daemon daemon(with_plugins({"--workers", "1", "--queue", "1"}));
    const int port = daemon.port();
    const std::string name = fresh_name();
    PendingCall running(port, "hold", {name});
    REQUIRE(until(port, name, "started", 1));
    PendingCall queued(port, "hold", {name});
    const auto queue = [&] { return call(port, "server.info")["totals"]["workers"]["queued"] == 1; };
    REQUIRE(eventually(queue));

    const HttpReply reply = post(port, call_object("hold", {name}).dump());
    CHECK(reply.status == 503);
    CHECK(std::stoi(reply.header("Retry-After")) >= 1);
    const Json error = Json::parse(reply.body)["error"];
    CHECK(error["code"] == -32001);
    CHECK(error["data"]["retry_after_ms"].get<int>() >= 1);

    SECTION("a batch stays 200") {
        const HttpReply batch = post(port, Json::array({call_object("hold", {name})}).dump());
        CHECK(batch.status == 200);
        CHECK(code_of(Json::parse(batch.body)[0]) == -32001);
    }
    SECTION("a notification is lost without a word") {
        CHECK(post(port, R"({"jsonrpc":"2.0","method":"hold","params":["x"]})").status == 204);
    }
    SECTION("a rejected task was never there, and its key may be used again") {
        const Json task{{"method", "hold"}, {"params", {name}}, {"idempotency_key", "k"}};
        CHECK(call_code(port, "task.submit", task) == -32001);
        CHECK(call(port, "task.list")["tasks"].empty());
        call(port, "release", {name});
        running.response();
        CHECK(call(port, "task.submit", task)["method"] == "hold");
    }
    SECTION("a rejected call with a key may come again") {
        const HeaderList key{{"Idempotency-Key", "k"}};
        CHECK(call_code(port, "hold", {name}, key) == -32001);
        call(port, "release", {name});
        running.response();
        queued.response();
        CHECK(call(port, "hold", {name}, key) == 2);
    }
    SECTION("the daemon's own methods and inline functions answer") {
        CHECK(call(port, "server.ping").contains("epoch"));
        CHECK(call(port, "add", {1, 2}) == 3.0);
    }
    call(port, "release", {name});
}

TEST_CASE("an answer beyond its bound is an error in its place", "[server]") {
    Daemon daemon(with_plugins({"--max-reply-json-bytes", "4000000"}));
    CHECK(call(daemon.port(), "text_of", {3'900'000}).get<std::string>().size() == 3'900'000);
    CHECK(call_code(daemon.port(), "text_of", {4'000'000}) == -32003);
    Json batch = Json::array();
    for (int i = 0; i < 10; ++i)
        batch.push_back(call_object("text_of", {3'900'000}, i));
    const HttpReply reply = post(daemon.port(), batch.dump());
    const Json answers = Json::parse(reply.body);
    CHECK(reply.body.size() <= 25'000'000);
    CHECK(answers.size() == 10);
    CHECK(answers.front()["result"].get<std::string>().size() == 3'900'000);
    CHECK(code_of(answers.back()) == -32003);
}
