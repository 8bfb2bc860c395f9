#include <catch2/catch_test_macros.hpp>

#include "integration/server/shared_daemon.hpp"

using namespace shared_tensor::test;

TEST_CASE("a call repeated with its idempotency key runs once", "[server]") {
    const int port = shared_daemon();
    const std::string name = fresh_name();
    const HeaderList key{{"Idempotency-Key", name}};
    PendingCall first(port, "hold", {name}, key);
    REQUIRE(until(port, name, "started", 1));
    PendingCall again(port, "hold", {name}, key);
    call(port, "release", {name});
    CHECK(first.response()["result"] == 0);
    CHECK(again.response()["result"] == 0);
    CHECK(call(port, "hold", {name}, key) == 0);
    CHECK(runs(port, name, "started") == 1);

    SECTION("other parameters are rejected") { CHECK(call_code(port, "hold", {fresh_name()}, key) == -32602); }
    SECTION("the key of another method is another key") { CHECK(call(port, "hold_one", {name}, key) == 1); }
    SECTION("without it, it runs again") { CHECK(call(port, "hold", {name}) == 1); }
}

TEST_CASE("a call with a key goes on when its client goes away", "[server]") {
    const int port = shared_daemon();
    const std::string name = fresh_name();
    const HeaderList key{{"Idempotency-Key", name}};
    PendingCall first(port, "hold", {name}, key);
    REQUIRE(until(port, name, "started", 1));
    first.hang_up();
    PendingCall again(port, "hold", {name}, key);
    call(port, "release", {name});
    CHECK(again.response()["result"] == 0);
    CHECK(runs(port, name, "cancelled") == 0);
}

TEST_CASE("a call with a key still ends at its deadline", "[server]") {
    const int port = shared_daemon();
    const std::string name = fresh_name();
    CHECK(call_code(port, "hold", {name}, {{"Idempotency-Key", name}, {"Request-Timeout", "100"}}) == -32002);
    if (runs(port, name, "started") == 1) CHECK(until(port, name, "cancelled", 1));
}

TEST_CASE("a task submitted again with its key is the same task", "[server]") {
    const int port = shared_daemon();
    const std::string name = fresh_name();
    const Json wanted{{"method", "hold"}, {"params", {name}}, {"idempotency_key", name}};
    const Json id = call(port, "task.submit", wanted)["id"];
    CHECK(call(port, "task.submit", wanted)["id"] == id);
    Json other = wanted;
    other["params"] = {fresh_name()};
    CHECK(call_code(port, "task.submit", other) == -32602);
    call(port, "release", {name});
    call(port, "task.wait", {id});
    CHECK(call(port, "task.submit", wanted)["id"] == id);
    CHECK(runs(port, name, "started") == 1);
}

TEST_CASE("idempotency keys have bounds", "[server]") {
    const int port = shared_daemon();
    CHECK(call_code(port, "add", {1, 2}, {{"Idempotency-Key", std::string(256, 'k')}}) == -32602);
    const std::string batch = Json::array({call_object("add", {1, 2})}).dump();
    CHECK(code_of(Json::parse(post(port, batch, {{"Idempotency-Key", "k"}}).body)) == -32600);
    Json item = call_object("add", {1, 2});
    item["meta"] = {{"idempotency_key", fresh_name()}};
    CHECK(Json::parse(post(port, Json::array({item, item}).dump()).body)[1]["result"] == 3.0);
}

TEST_CASE("a key tells tensors of any size apart", "[server]") {
    const auto code = [key = fresh_name()](char last) {
        constexpr std::size_t kSize = 3 << 20;  // above what is compared byte by byte
        const Json x{{"$tensor", {{"dtype", "uint8"}, {"shape", {kSize}}, {"body", {{"offset", 0}, {"size", kSize}}}}}};
        std::string json = call_object("scale", x).dump();
        const std::string body = framed(json, std::string(kSize - 1, 'x') + last);
        const HttpReply reply =
            post(shared_daemon(), body,
                 {{"Content-Type", kFrame}, {"Shared-Tensor-Accept", "body"}, {"Idempotency-Key", key}});
        return reply.header("Content-Type") == kFrame ? 0 : code_of(Json::parse(reply.body));
    };
    CHECK(code('1') == 0);
    CHECK(code('1') == 0);
    CHECK(code('2') == -32602);
}

TEST_CASE("a key is known for a while after the end of its call", "[server]") {
    Daemon daemon(with_plugins({"--idempotency-window", "1ms"}));
    const std::string name = fresh_name();
    call(daemon.port(), "release", {name});
    const auto started_before = [&] { return call(daemon.port(), "hold", {name}, {{"Idempotency-Key", "k"}}); };
    CHECK(started_before() == 0);
    CHECK(eventually([&] { return started_before() == 1; }));
}

TEST_CASE("equal calls of a cached function in flight run once, and later ones are remembered", "[server]") {
    const int port = shared_daemon();
    const std::string name = fresh_name();
    std::vector<PendingCall> calls;
    for (int i = 0; i < 8; ++i)
        calls.emplace_back(port, "hold_cached", Json{name});
    REQUIRE(until(port, name, "started", 1));
    call(port, "release", {name});
    for (PendingCall& pending : calls)
        CHECK(pending.response()["result"] == 0);
    CHECK(call(port, "hold_cached", {name}) == 0);
    CHECK(runs(port, name, "started") == 1);

    // It is remembered when its callers have been answered: a moment later.
    CHECK(eventually([&] {
        return call(port, "cache.clear", {{"function", "hold_cached"}})["cleared"].get<int>() >= 1;
    }));
    CHECK(call(port, "hold_cached", {name}) == 1);
}

TEST_CASE("a shared run goes on until the last of its callers is gone", "[server]") {
    const int port = shared_daemon();
    const std::string name = fresh_name();
    PendingCall first(port, "hold_cached", {name});
    REQUIRE(until(port, name, "started", 1));
    const auto misses = [&] { return call(port, "server.info")["totals"]["cache"]["misses"].get<std::uint64_t>(); };
    const std::uint64_t before = misses();
    PendingCall second(port, "hold_cached", {name}, {{"Request-Timeout", "20000"}});
    REQUIRE(eventually([&] { return misses() > before; }));  // it has come, and shares the run
    SECTION("one of two hangs up") {
        first.hang_up();
        call(port, "release", {name});
        CHECK(second.response()["result"] == 0);
        CHECK(runs(port, name, "cancelled") == 0);
    }
    SECTION("both hang up, and a third begins anew") {
        first.hang_up();
        second.hang_up();
        CHECK(until(port, name, "cancelled", 1));
        PendingCall third(port, "hold_cached", {name});
        CHECK(until(port, name, "started", 2));
        call(port, "release", {name});
        CHECK(third.response()["result"] == 1);
    }
}

TEST_CASE("a cached function runs every time with --no-cache", "[server]") {
    Daemon daemon(with_plugins({"--no-cache"}));
    const std::string name = fresh_name();
    call(daemon.port(), "release", {name});
    CHECK(call(daemon.port(), "hold_cached", {name}) == 0);
    CHECK(call(daemon.port(), "hold_cached", {name}) == 1);
}

TEST_CASE("concurrency(1) runs one call after another, and holds no worker for those who wait", "[server]") {
    const int port = shared_daemon();
    const std::string name = fresh_name();
    std::vector<PendingCall> calls;
    for (int i = 0; i < 8; ++i)  // more than there are workers
        calls.emplace_back(port, "hold_one", Json{name});
    REQUIRE(until(port, name, "started", 1));
    CHECK(call(port, "subtract", {3, 1}) == 2);
    call(port, "release", {name});
    for (PendingCall& pending : calls)
        CHECK(pending.response().contains("result"));
    CHECK(runs(port, name, "peak") == 1);
}
