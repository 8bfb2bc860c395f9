// Each limit of the daemon, lowered by its option and seen through its door.

#include <catch2/catch_test_macros.hpp>
#include <string>

#include "integration/server/shared_daemon.hpp"

using namespace shared_tensor::test;

namespace {

std::string add_call() { return call_object("add", {1, 2}).dump(); }

std::string post_head(int port, const std::string& content_type, const std::string& framing) {
    return "POST /jsonrpc HTTP/1.1\r\nHost: 127.0.0.1:" + std::to_string(port) + "\r\nContent-Type: " + content_type +
           "\r\n" + framing + "\r\n\r\n";
}

}  // namespace

TEST_CASE("requests that are too large are rejected by their status", "[server]") {
    struct Case {
        Words option;
        std::string body;
        HeaderList headers;
        int status;
    };
    for (const Case& one : std::initializer_list<Case>{
             {{"--max-json-bytes", "200"}, add_call() + std::string(300, ' '), {}, 413},
             {{"--max-body-bytes", "1000"},
              framed(add_call(), std::string(2000, 'x')),
              {{"Content-Type", kFrame}},
              413},
         }) {
        INFO(one.option[0]);
        const OwnDaemon daemon(one.option);
        CHECK(daemon.post(one.body, one.headers).status == one.status);
        CHECK(daemon.serves());
    }
    const OwnDaemon depth({"--max-json-depth", "5"});
    CHECK(depth.code("echo", Json::parse("[[[[[[1]]]]]]")) == -32700);
    CHECK(depth.serves());
    const OwnDaemon items({"--max-batch-items", "2"});
    const Json call = call_object("add", {1, 2});
    CHECK(code_of(Json::parse(items.post(Json::array({call, call, call}).dump()).body)) == -32600);
    CHECK(Json::parse(items.post(Json::array({call, call}).dump()).body).size() == 2);
}

TEST_CASE("requests that do not come whole get 408, and 503 if there is no room for them", "[server]") {
    struct Case {
        Words option;
        const char *content_type, *framing, *body;
        int status;
    };
    for (const Case& one : std::initializer_list<Case>{
             {{"--max-bytes-in-flight", "1M"}, kFrame, "Content-Length: 2097152", "", 503},
             {{"--body-timeout", "100ms"}, "application/json", "Content-Length: 100", "{", 408},
             {{"--body-timeout", "100ms"}, kFrame, "Content-Length: 1000", "abc", 408},
         }) {
        INFO(one.option[0] << ' ' << one.content_type);
        const OwnDaemon daemon(one.option);
        HttpPeer peer(daemon.port());
        peer.send(post_head(daemon.port(), one.content_type, one.framing) + one.body);
        CHECK(peer.read().status == one.status);
        CHECK(daemon.serves());
    }
    const OwnDaemon heads({"--header-timeout", "100ms"});
    HttpPeer head(heads.port());
    head.send("POST /jsonrpc HTTP/1.1\r\nHost:");
    CHECK(head.read().status == 408);
    CHECK(heads.serves());

    const OwnDaemon rates({"--min-bytes-per-second", "1000000", "--body-timeout", "500ms"});
    HttpPeer trickle(rates.port());
    trickle.send(post_head(rates.port(), kFrame, "Content-Length: 1000000"));
    CHECK(eventually([&] {
        trickle.send("x");
        return trickle.readable();
    }));
    CHECK(trickle.read().status == 408);
}

TEST_CASE("the chunks of a body are bounded", "[server]") {
    const OwnDaemon daemon;
    HttpPeer peer(daemon.port());
    std::string chunks = post_head(daemon.port(), "application/json", "Transfer-Encoding: chunked");
    for (int i = 0; i <= 1 << 20; ++i)
        chunks += "1\r\n \r\n";
    peer.send(chunks);
    CHECK(peer.read().status == 413);
    CHECK(daemon.serves());
}

TEST_CASE_METHOD(Calls, "headers are bounded in number and size", "[server]") {
    const auto status = [&](const HeaderList& headers) { return post(add_call(), headers).status; };
    CHECK(status(HeaderList(90, {"X-Header", "x"})) == 200);
    CHECK(status(HeaderList(101, {"X-Header", "x"})) == 431);
    CHECK(status({{"X-Header", std::string(8'000, 'x')}}) == 200);
    CHECK(status({{"X-Header", std::string(8'192, 'x')}}) == 431);
}

TEST_CASE("connections are bounded in number, and end when they are idle", "[server]") {
    const auto is_healthy = [](HttpPeer& peer) {
        peer.request("GET", "/healthz");
        return peer.read().status == 200;
    };
    const OwnDaemon few({"--max-connections", "2"});
    HttpPeer one(few.port()), two(few.port());
    CHECK(is_healthy(one));
    CHECK(is_healthy(two));
    HttpPeer third(few.port());
    CHECK(third.read().status == 503);
    CHECK(is_healthy(one));

    const OwnDaemon brief({"--idle-timeout", "3s"});
    HttpPeer idle(brief.port());
    CHECK(is_healthy(idle));
    CHECK(idle.closed_by_peer());
    CHECK(brief.serves());
}

TEST_CASE("tasks are bounded in number, and the results of finished ones in bytes", "[server]") {
    const OwnDaemon few({"--max-tasks", "2"});
    for (int i = 0; i < 2; ++i)
        few.submit("hold", {few.name});
    const auto code = [&] { return few.code("task.submit", {"hold", {few.name}}); };
    CHECK(code() == -32001);
    few.release();
    CHECK(eventually([&] { return code() == 0; }));

    const OwnDaemon small({"--max-task-bytes", "3K"});
    const auto submit = [&] {
        const Json id = small.submit("echo", {std::string(2000, 'x')});
        CHECK(small.wait(id)["state"] == "completed");
        return id;
    };
    const Json first = submit(), second = submit();
    CHECK(small.code("task.result", {{"id", first}}) == -32005);
    CHECK(small.call("task.result", {{"id", second}}).get<std::string>().size() == 2000);
}

TEST_CASE("idempotency keys of calls that ended are bounded in number and bytes", "[server]") {
    const auto runs_twice = [&](const char* bytes, int others) {
        const OwnDaemon daemon({"--idempotency-bytes", bytes});
        daemon.release();
        daemon.hold("hold", {{"Idempotency-Key", "first"}}).response();
        HttpPeer peer(daemon.port());
        for (int i = 0; i < others; ++i) {
            peer.request("POST", "/jsonrpc", add_call(), {{"Idempotency-Key", std::to_string(i)}});
            REQUIRE(peer.read().status == 200);
        }
        daemon.hold("hold", {{"Idempotency-Key", "first"}}).response();
        return daemon.runs("started") == 2;
    };
    CHECK(runs_twice("0", 1));
    CHECK(runs_twice("1G", 10'000));
    CHECK_FALSE(runs_twice("1G", 9'000));
}

TEST_CASE("sessions are bounded in number and end when idle", "[server]") {
    const OwnDaemon few({"--max-sessions", "2"});
    few.call("session.open");
    const Json second = few.call("session.open");
    const HttpReply rejected = few.post(call_object("session.open", nullptr).dump());
    CHECK(rejected.status == 503);
    CHECK(code_of(Json::parse(rejected.body)) == -32001);
    few.call("session.close", {second["session"]});
    CHECK(few.call("session.open").contains("session"));

    const OwnDaemon brief({"--session-idle", "100ms"});
    const HeaderList session{{"Shared-Tensor-Session", brief.call("session.open")["session"]}};
    CHECK(eventually([&] { return brief.totals()["sessions"] == 0; }));
    CHECK(brief.code("server.ping", nullptr, session) == -32005);
}
