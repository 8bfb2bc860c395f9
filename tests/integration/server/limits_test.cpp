// Each limit of the daemon, lowered by its option and seen through its door.

#include <catch2/catch_test_macros.hpp>
#include <string>

#include "integration/server/shared_daemon.hpp"

using namespace shared_tensor::test;

namespace {

std::string add_call() { return call_object("add", {1, 2}).dump(); }

/// A daemon with one limit at a value that the tests go beyond.
struct Limited : Daemon {
    Limited(const std::string& option, const std::string& value) : Daemon(with_plugins({"--" + option, value})) {}

    int status(const std::string& body, const HeaderList& headers = {}) const {
        return post(port(), body, headers).status;
    }
    bool serves() const { return call(port(), "server.ping").is_object() && call(port(), "add", {1, 2}) == 3.0; }
};

/// Sends the beginning of a request and nothing more; the status of the answer.
int status_of_unfinished(int port, const std::string& beginning) {
    HttpPeer peer(port);
    peer.send(beginning);
    return peer.read().status;
}

std::string post_head(int port, const std::string& content_type, const std::string& framing) {
    return "POST /jsonrpc HTTP/1.1\r\nHost: 127.0.0.1:" + std::to_string(port) + "\r\nContent-Type: " + content_type +
           "\r\n" + framing + "\r\n\r\n";
}

}  // namespace

TEST_CASE("the JSON of a request is bounded", "[server]") {
    const Limited daemon("max-json-bytes", "200");
    CHECK(daemon.status(add_call() + std::string(300, ' ')) == 413);
    CHECK(daemon.serves());
}

TEST_CASE("the depth of JSON is bounded", "[server]") {
    const Limited daemon("max-json-depth", "5");
    CHECK(call_code(daemon.port(), "echo", Json::parse("[[[[[[1]]]]]]")) == -32700);
    CHECK(daemon.serves());
}

TEST_CASE("a binary body is bounded", "[server]") {
    const Limited daemon("max-body-bytes", "1000");
    CHECK(daemon.status(framed(add_call(), std::string(2000, 'x')), {{"Content-Type", kFrame}}) == 413);
    CHECK(daemon.serves());
}

TEST_CASE("the bodies in flight together are bounded", "[server]") {
    const Limited daemon("max-bytes-in-flight", "1M");
    CHECK(status_of_unfinished(daemon.port(), post_head(daemon.port(), kFrame, "Content-Length: 2097152")) == 503);
    CHECK(daemon.serves());
}

TEST_CASE("the chunks of a body are bounded", "[server]") {
    const Daemon daemon(with_plugins({}));
    HttpPeer peer(daemon.port());
    std::string chunks;
    for (int i = 0; i <= 1 << 20; ++i)
        chunks += "1\r\n \r\n";
    peer.send(post_head(daemon.port(), "application/json", "Transfer-Encoding: chunked"));
    peer.send(chunks);
    CHECK(peer.read().status == 413);
    CHECK(call(daemon.port(), "add", {1, 2}) == 3.0);
}

TEST_CASE("the items of a batch are bounded", "[server]") {
    const Limited daemon("max-batch-items", "2");
    const Json call = call_object("add", {1, 2});
    CHECK(code_of(Json::parse(post(daemon.port(), Json::array({call, call, call}).dump()).body)) == -32600);
    CHECK(Json::parse(post(daemon.port(), Json::array({call, call}).dump()).body).size() == 2);
}

TEST_CASE("headers are bounded in number and size", "[server]") {
    const int port = shared_daemon();
    const auto status = [&](const HeaderList& headers) { return post(port, add_call(), headers).status; };
    CHECK(status(HeaderList(90, {"X-Header", "x"})) == 200);
    CHECK(status(HeaderList(101, {"X-Header", "x"})) == 431);
    CHECK(status({{"X-Header", std::string(8'000, 'x')}}) == 200);
    CHECK(status({{"X-Header", std::string(8'192, 'x')}}) == 431);
}

TEST_CASE("connections beyond the bound are told so", "[server]") {
    const Limited daemon("max-connections", "2");
    HttpPeer one(daemon.port()), two(daemon.port());
    for (HttpPeer* peer : {&one, &two}) {
        peer->request("GET", "/healthz");
        CHECK(peer->read().status == 200);
    }
    HttpPeer third(daemon.port());
    CHECK(third.read().status == 503);
    one.request("GET", "/healthz");
    CHECK(one.read().status == 200);
}

TEST_CASE("headers that do not become whole in time get 408", "[server]") {
    const Limited daemon("header-timeout", "100ms");
    CHECK(status_of_unfinished(daemon.port(), "POST /jsonrpc HTTP/1.1\r\nHost:") == 408);
    CHECK(daemon.serves());
}

TEST_CASE("JSON that does not become whole in time gets 408", "[server]") {
    const Limited daemon("body-timeout", "100ms");
    CHECK(status_of_unfinished(daemon.port(),
                               post_head(daemon.port(), "application/json", "Content-Length: 100") + "{") == 408);
    CHECK(daemon.serves());
}

TEST_CASE("a binary request that stalls gets 408", "[server]") {
    const Limited daemon("body-timeout", "100ms");
    CHECK(status_of_unfinished(daemon.port(), post_head(daemon.port(), kFrame, "Content-Length: 1000") + "abc") == 408);
    CHECK(daemon.serves());
}

TEST_CASE("a binary request that trickles gets 408", "[server]") {
    const Daemon daemon({"--min-bytes-per-second", "1000000", "--body-timeout", "500ms"});
    HttpPeer peer(daemon.port());
    peer.send(post_head(daemon.port(), kFrame, "Content-Length: 1000000"));
    CHECK(eventually([&] {
        peer.send("x");
        return peer.readable();
    }));
    CHECK(peer.read().status == 408);
}

TEST_CASE("a connection without a request ends", "[server]") {
    const Limited daemon("idle-timeout", "1s");
    HttpPeer peer(daemon.port());
    peer.request("GET", "/healthz");
    CHECK(peer.read().status == 200);
    CHECK(peer.closed_by_peer());
    CHECK(daemon.serves());
}

TEST_CASE("tasks are bounded in number", "[server]") {
    const Limited daemon("max-tasks", "2");
    const std::string name = fresh_name();
    for (int i = 0; i < 2; ++i)
        call(daemon.port(), "task.submit", {"hold", {name}});
    CHECK(call_code(daemon.port(), "task.submit", {"hold", {name}}) == -32001);
    call(daemon.port(), "release", {name});
    CHECK(eventually([&] { return call_code(daemon.port(), "task.submit", {"hold", {name}}) == 0; }));
}

TEST_CASE("the results of finished tasks are bounded in bytes", "[server]") {
    const Limited daemon("max-task-bytes", "3K");
    const auto submit = [&] {
        const Json id = call(daemon.port(), "task.submit", {"echo", {std::string(2000, 'x')}})["id"];
        CHECK(call(daemon.port(), "task.wait", {{"id", id}})["state"] == "completed");
        return id;
    };
    const Json first = submit(), second = submit();
    CHECK(call_code(daemon.port(), "task.result", {{"id", first}}) == -32005);
    CHECK(call(daemon.port(), "task.result", {{"id", second}}).get<std::string>().size() == 2000);
}

TEST_CASE("idempotency keys of calls that ended are bounded in number and bytes", "[server]") {
    const std::string name = fresh_name();
    const auto runs_twice = [&](const Limited& daemon, int others) {
        call(daemon.port(), "release", {name});
        call(daemon.port(), "hold", {name}, {{"Idempotency-Key", "first"}});
        HttpPeer peer(daemon.port());
        for (int i = 0; i < others; ++i) {
            peer.request("POST", "/jsonrpc", add_call(),
                         {{"Content-Type", "application/json"}, {"Idempotency-Key", std::to_string(i)}});
            REQUIRE(peer.read().status == 200);
        }
        call(daemon.port(), "hold", {name}, {{"Idempotency-Key", "first"}});
        return runs(daemon.port(), name, "started") == 2;
    };
    CHECK(runs_twice(Limited("idempotency-bytes", "0"), 1));
    CHECK(runs_twice(Limited("idempotency-bytes", "1G"), 10'000));
    CHECK_FALSE(runs_twice(Limited("idempotency-bytes", "1G"), 9'000));
}
