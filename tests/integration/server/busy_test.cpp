#include <catch2/catch_test_macros.hpp>

#include "integration/server/shared_daemon.hpp"
#include "support/descriptors.hpp"
#include "support/process_memory.hpp"

using namespace shared_tensor::test;

TEST_CASE("control methods answer while all workers are busy", "[server]") {
    Daemon daemon(with_plugins({"--workers", "2"}));
    const int port = daemon.port();
    const std::string name = fresh_name();
    std::vector<PendingCall> calls;
    for (int i = 0; i < 6; ++i)
        calls.emplace_back(port, "hold", Json{name});
    REQUIRE(until(port, name, "started", 2));
    const Json task = call(port, "task.submit", {"hold", {name}});
    CHECK(call(port, "server.ping").contains("epoch"));
    CHECK(call(port, "server.info")["totals"]["workers"]["busy"] == 2);
    CHECK(call(port, "task.get", {task["id"]})["state"] == "pending");
    CHECK(call(port, "task.list")["tasks"].size() == 1);
    CHECK(call(port, "task.cancel", {task["id"]})["state"] == "cancelled");
    CHECK(call(port, "rpc.discover").contains("methods"));
    CHECK(call(port, "session.open").contains("session"));
    HttpPeer peer(port);
    peer.request("GET", "/healthz");
    CHECK(peer.read().status == 200);
    call(port, "release", {name});
    for (PendingCall& pending : calls)
        CHECK(pending.response().contains("result"));
}

TEST_CASE("none of 64 busy connections waits for a call that lasts", "[server]") {
    Daemon daemon(with_plugins());
    const int port = daemon.port();
    const std::string name = fresh_name();
    const std::string quick = call_object("release", {fresh_name()}).dump();  // runs on the connection's thread
    const std::string slow = call_object("hold", {name}).dump();
    std::vector<HttpPeer> peers;
    for (int i = 0; i < 64; ++i)
        peers.emplace_back(port);
    HttpPeer& lasts = peers[20];
    for (int round = 0; round < 50; ++round) {
        for (HttpPeer& one : peers) {
            if (&one != &lasts) one.request("POST", "/jsonrpc", quick);
            if (&one == &lasts && round == 10) one.request("POST", "/jsonrpc", slow);
        }
        for (HttpPeer& one : peers) {
            if (&one != &lasts) REQUIRE(one.read().status == 200);  // or it waits until somebody releases `name`
        }
    }
    CHECK(until(port, name, "started", 1));
    call(port, "release", {name});
    CHECK(lasts.read().status == 200);
}

TEST_CASE("tasks never take the last worker", "[server]") {
    Daemon daemon(with_plugins({"--workers", "2"}));
    const int port = daemon.port();
    const std::string name = fresh_name();
    std::vector<Json> ids;
    for (int i = 0; i < 4; ++i)
        ids.push_back(call(port, "task.submit", {"hold", {name}})["id"]);
    REQUIRE(until(port, name, "started", 1));
    CHECK(call(port, "subtract", {3, 1}) == 2);
    CHECK(runs(port, name, "started") == 1);
    call(port, "release", {name});
    for (const Json& id : ids)
        CHECK(call(port, "task.wait", {id})["state"] == "completed");
}

TEST_CASE("tasks that wait leave an eighth of the queue to plain calls, and the error says so", "[server]") {
    Daemon daemon(with_plugins({"--workers", "2", "--queue", "16"}));
    const int port = daemon.port();
    const std::string name = fresh_name();
    std::vector<Json> ids{call(port, "task.submit", {"hold", {name}})["id"]};
    REQUIRE(until(port, name, "started", 1));
    for (int i = 0; i < 14; ++i)
        ids.push_back(call(port, "task.submit", {"hold", {name}})["id"]);
    const HttpReply rejected = post(port, call_object("task.submit", {"hold", {name}}).dump());
    CHECK(rejected.status == 503);
    const Json error = Json::parse(rejected.body)["error"];
    CHECK(error["code"] == -32001);
    CHECK(error["data"]["detail"].get<std::string>().find("2 of the 16 places") != std::string::npos);

    std::vector<PendingCall> calls;  // one runs on the worker that tasks leave free, two wait
    for (int i = 0; i < 3; ++i)
        calls.emplace_back(port, "hold", Json{name});
    REQUIRE(until(port, name, "started", 2));
    REQUIRE(eventually([&] { return call(port, "server.info")["totals"]["workers"]["queued"] == 16; }));
    const Json full = Json::parse(post(port, call_object("hold", {name}).dump()).body)["error"];
    CHECK(full["code"] == -32001);
    CHECK(full["data"]["detail"].get<std::string>().find("--queue") != std::string::npos);
    call(port, "release", {name});
    for (PendingCall& pending : calls)
        CHECK(pending.response().contains("result"));
    for (const Json& id : ids)
        CHECK(call(port, "task.wait", {id})["state"] == "completed");
}

TEST_CASE("a thousand clients in task.wait leave the server free, and each gets the end", "[server]") {
    allow_many_descriptors();
    Daemon daemon(with_plugins());
    const int port = daemon.port();
    const std::string name = fresh_name();
    const Json id = call(port, "task.submit", {"hold", {name}})["id"];
    std::vector<PendingCall> waiting;
    for (int i = 0; i < 1000; ++i)
        waiting.emplace_back(port, "task.wait", Json{{"id", id}, {"timeout_ms", 30'000}});
    for (int i = 0; i < 20; ++i)
        CHECK(call(port, "server.ping").contains("epoch"));
    CHECK(call(port, "subtract", {3, 1}) == 2);
    call(port, "release", {name});
    int completed = 0;
    for (PendingCall& pending : waiting)
        completed += pending.response()["result"]["state"] == "completed" ? 1 : 0;
    CHECK(completed == 1000);
}

TEST_CASE("after a burst of calls at once the daemon gives its memory back", "[server]") {
    constexpr int kCalls = 1500;
    allow_many_descriptors();
    Daemon daemon(with_plugins({"--workers", "4", "--queue", "4096"}));
    const int port = daemon.port();
    const pid_t pid = daemon.child().pid();
    const std::string name = fresh_name();
    CHECK(call(port, "add", {1, 2}) == 3.0);
    const std::uint64_t before = resident_bytes(pid);
    {
        std::vector<PendingCall> calls;
        for (int i = 0; i < kCalls; ++i)
            calls.emplace_back(port, "hold", Json{name});
        REQUIRE(eventually(
            [&] { return call(port, "server.info")["totals"]["workers"]["queued"].get<int>() >= kCalls - 4; }));
        call(port, "release", {name});
        for (PendingCall& pending : calls)
            REQUIRE(pending.response().contains("result"));
    }
    // Threads without work end after 10 s, and the heap is trimmed within another 10 s.
    const std::uint64_t most = before + (std::uint64_t{48} << 20);
    for (int i = 0; i < 6 && resident_bytes(pid) > most; ++i)
        (void)eventually([&] { return resident_bytes(pid) <= most; });
    CHECK(resident_bytes(pid) <= most);
}
