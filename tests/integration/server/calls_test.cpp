// How calls run and end: deadlines, clients that leave, idempotency keys, shared runs, a full queue.

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "integration/server/shared_daemon.hpp"
#include "support/process.hpp"

using namespace shared_tensor::test;

namespace {

std::string notification(const std::string& name) {
    return R"({"jsonrpc":"2.0","method":"hold","params":[")" + name + "\"]}";
}

int queued(const Calls& daemon) { return daemon.totals()["workers"]["queued"]; }

}  // namespace

TEST_CASE_METHOD(Calls, "a deadline answers -32002 with status 200, and the function sees that", "[server]") {
    const bool brief = GENERATE(false, true);
    if (brief) {
        make_brief("hold");
        make_brief("hold_briefly");
    }
    HttpReply reply;
    bool may_be_joined = false;  // then it runs on a worker
    SECTION("of the header") { reply = post(call_object("hold", {name}).dump(), {{"Request-Timeout", "200"}}); }
    SECTION("of the request's meta") {
        Json request = call_object("hold", {name});
        request["meta"] = {{"timeout_ms", 200}};
        reply = post(request.dump(), {{"Request-Timeout", "60000"}});
    }
    SECTION("of the function") { reply = post(call_object("hold_briefly", {name}).dump()); }
    SECTION("of a call with a key") {
        reply = post(call_object("hold", {name}).dump(), {{"Idempotency-Key", name}, {"Request-Timeout", "100"}});
        may_be_joined = true;
    }
    CHECK(reply.status == 200);
    CHECK((reply.header("Connection") == "close") == (brief && !may_be_joined));
    CHECK(code_of(Json::parse(reply.body)) == -32002);
    if (runs("started") == 1) CHECK(until("cancelled"));
}

TEST_CASE_METHOD(Calls, "a deadline is kept even when the function ignores it", "[server]") {
    CHECK(code("hold_deaf", {name}, {{"Request-Timeout", "100"}}) == -32002);
    release();
}

TEST_CASE_METHOD(Calls, "a function that did not return at once as before is left alone with its connection",
                 "[server]") {
    make_brief("hold_deaf");
    HttpPeer peer(port());
    const std::string request = call_object("hold_deaf", {name}).dump();
    peer.request("POST", "/jsonrpc", request, {{"Request-Timeout", "100"}});
    const HttpReply reply = peer.read();
    CHECK(reply.status == 200);
    CHECK(code_of(Json::parse(reply.body)) == -32002);
    CHECK(reply.header("Connection") == "close");
    CHECK(runs("ended") == 0);
    CHECK(until("cancelled"));
    CHECK(serves());
    release();
    CHECK(until("ended"));
    CHECK(call("hold_deaf", {name}) == 1);  // on a worker again
}

TEST_CASE_METHOD(Calls, "a client that hangs up cancels its call, and all calls of its batch", "[server]") {
    const int count = GENERATE(1, 2);
    if (GENERATE(false, true)) make_brief("hold");
    const Json one = call_object("hold", {name}, 1), two = call_object("hold", {name}, 2);
    const Json requests = count == 1 ? one : Json::array({one, two});
    HttpPeer peer(port());
    peer.request("POST", "/jsonrpc", requests.dump());
    REQUIRE(until("started", count));
    peer.close();
    CHECK(until("cancelled", count));
}

TEST_CASE_METHOD(Calls, "a notification goes on when its client hangs up, and ends at its deadline", "[server]") {
    SECTION("its client hangs up") {
        CHECK(post(notification(name)).status == 204);
        REQUIRE(until("started"));
        release();
        REQUIRE(until("ended"));
        CHECK(runs("cancelled") == 0);
    }
    SECTION("its deadline") {
        CHECK(post(notification(name), {{"Request-Timeout", "5000"}}).status == 204);
        CHECK(until("cancelled"));
    }
}

TEST_CASE("a notification does not wait for what nobody is told", "[server]") {
    Json watch = call_object("tensor.watch", {{"name", "nothing"}, {"timeout_ms", 3'600'000}});
    watch.erase("id");
    const OwnDaemon daemon({"--max-wait", "1h"});
    CHECK(daemon.post(Json::array({watch, watch}).dump(), {{"Request-Timeout", "3600000"}}).status == 204);
}

TEST_CASE("a full queue rejects at once with -32001, 503 and Retry-After", "[server]") {
    const OwnDaemon daemon({"--workers", "1", "--queue", "1"});
    if (GENERATE(false, true)) daemon.make_brief("hold");
    PendingCall running = daemon.hold();
    REQUIRE(daemon.until("started"));
    PendingCall waiting = daemon.hold();
    REQUIRE(eventually([&] { return queued(daemon) == 1; }));
    const Json call = call_object("hold", {daemon.name});

    const HttpReply reply = daemon.post(call.dump());
    CHECK(reply.status == 503);
    CHECK(std::stoi(reply.header("Retry-After")) >= 1);
    const Json error = Json::parse(reply.body)["error"];
    CHECK(error["code"] == -32001);
    CHECK(error["data"]["retry_after_ms"].get<int>() >= 1);
    CHECK(error["data"]["detail"].get<std::string>().find("--queue") != std::string::npos);
    const HttpReply batch = daemon.post(Json::array({call}).dump());  // stays 200
    CHECK(batch.status == 200);
    CHECK(code_of(Json::parse(batch.body)[0]) == -32001);
    CHECK(daemon.post(notification("x")).status == 204);  // is lost without a word
    CHECK(daemon.serves());                               // the daemon's own methods and inline functions answer

    SECTION("a rejected task was never there, and its key may be used again") {
        const Json task{{"method", "hold"}, {"params", {daemon.name}}, {"idempotency_key", "k"}};
        CHECK(daemon.code("task.submit", task) == -32001);
        CHECK(daemon.call("task.list")["tasks"].empty());
        daemon.release();
        running.response();
        waiting.response();
        CHECK(daemon.call("task.submit", task)["method"] == "hold");
    }
    SECTION("a rejected call with a key, or of a cached function, may come again") {
        const HeaderList key{{"Idempotency-Key", "k"}};
        CHECK(daemon.code("hold", {daemon.name}, key) == -32001);
        CHECK(daemon.code("hold_cached", {daemon.name}) == -32001);
        daemon.release();
        running.response();
        waiting.response();
        CHECK(daemon.call("hold", {daemon.name}, key) == 2);
        CHECK(daemon.call("hold_cached", {daemon.name}) == 3);
    }
}

TEST_CASE_METHOD(Calls, "a call repeated with its idempotency key runs once", "[server]") {
    const HeaderList key{{"Idempotency-Key", name}};
    PendingCall first = hold("hold", key);
    REQUIRE(until("started"));
    PendingCall again = hold("hold", key);
    release();
    CHECK(first.response()["result"] == 0);
    CHECK(again.response()["result"] == 0);
    CHECK(call("hold", {name}, key) == 0);
    CHECK(runs("started") == 1);
    CHECK(code("hold", {fresh_name()}, key) == -32602);  // other parameters
    CHECK(call("hold_one", {name}, key) == 1);           // the key of another method is another key
    CHECK(call("hold", {name}) == 2);                    // without the key it runs again
}

TEST_CASE_METHOD(Calls, "a call with a key goes on when its client goes away", "[server]") {
    const HeaderList key{{"Idempotency-Key", name}};
    PendingCall first = hold("hold", key);
    REQUIRE(until("started"));
    first.hang_up();
    PendingCall again = hold("hold", key);
    release();
    CHECK(again.response()["result"] == 0);
    CHECK(runs("cancelled") == 0);
}

TEST_CASE_METHOD(Calls, "a task submitted again with its key is the same task", "[server]") {
    const Json key{{"idempotency_key", name}};
    const Json id = submit("hold", {name}, key);
    CHECK(submit("hold", {name}, key) == id);
    CHECK(code("task.submit", {{"method", "hold"}, {"params", {fresh_name()}}, {"idempotency_key", name}}) == -32602);
    release();
    wait(id);
    CHECK(submit("hold", {name}, key) == id);
    CHECK(runs("started") == 1);
}

TEST_CASE_METHOD(Calls, "idempotency keys have bounds, and a window", "[server]") {
    CHECK(code("add", {1, 2}, {{"Idempotency-Key", std::string(256, 'k')}}) == -32602);
    Json item = call_object("add", {1, 2});
    CHECK(code_of(Json::parse(post(Json::array({item}).dump(), {{"Idempotency-Key", "k"}}).body)) == -32600);
    item["meta"] = {{"idempotency_key", name}};
    CHECK(Json::parse(post(Json::array({item, item}).dump()).body)[1]["result"] == 3.0);

    const OwnDaemon daemon({"--idempotency-window", "1ms"});
    daemon.release();
    const auto started_before = [&] { return daemon.call("hold", {daemon.name}, {{"Idempotency-Key", "k"}}); };
    CHECK(started_before() == 0);
    CHECK(eventually([&] { return started_before() == 1; }));
}

TEST_CASE_METHOD(Calls, "a key tells tensors of any size apart", "[server]") {
    const auto code = [this](char last) {
        constexpr std::size_t kSize = 3 << 20;  // above what is compared byte by byte
        const Json x{{"$tensor", {{"dtype", "uint8"}, {"shape", {kSize}}, {"body", {{"offset", 0}, {"size", kSize}}}}}};
        const HttpReply reply =
            post(framed(call_object("scale", x).dump(), std::string(kSize - 1, 'x') + last),
                 {{"Content-Type", kFrame}, {"Shared-Tensor-Accept", "body"}, {"Idempotency-Key", name}});
        return reply.header("Content-Type") == kFrame ? 0 : code_of(Json::parse(reply.body));
    };
    CHECK(code('1') == 0);
    CHECK(code('1') == 0);
    CHECK(code('2') == -32602);
}

TEST_CASE_METHOD(Calls, "equal calls of a cached function in flight run once, and later ones are remembered",
                 "[server]") {
    std::vector<PendingCall> calls;
    for (int i = 0; i < 8; ++i)
        calls.push_back(hold("hold_cached"));
    REQUIRE(until("started"));
    release();
    for (PendingCall& pending : calls)
        CHECK(pending.response()["result"] == 0);
    CHECK(call("hold_cached", {name}) == 0);
    CHECK(runs("started") == 1);
    // It is remembered when its callers have been answered: a moment later.
    CHECK(eventually([&] { return call("cache.clear", {{"function", "hold_cached"}})["cleared"].get<int>() >= 1; }));
    CHECK(call("hold_cached", {name}) == 1);

    const OwnDaemon without({"--no-cache"});
    without.release();
    for (int i = 0; i < 2; ++i)
        CHECK(without.call("hold_cached", {without.name}) == i);
}

TEST_CASE_METHOD(Calls, "a shared run goes on until the last of its callers is gone", "[server]") {
    PendingCall first = hold("hold_cached");
    REQUIRE(until("started"));
    const Calls marker;  // the items of a batch are started in their order: when its call runs, `second` shares the run
    HttpPeer second(port());
    second.request("POST", "/jsonrpc",
                   Json::array({call_object("hold_cached", {name}, 1), call_object("hold", {marker.name}, 2)}).dump(),
                   {{"Request-Timeout", "20000"}});
    REQUIRE(marker.until("started"));
    first.hang_up();
    SECTION("one of two hangs up") {
        release();
        marker.release();
        CHECK(Json::parse(second.read().body)[0]["result"] == 0);
        CHECK(runs("cancelled") == 0);
    }
    SECTION("both hang up, and a third begins anew") {
        second.close();
        CHECK(until("cancelled"));
        PendingCall third = hold("hold_cached");
        CHECK(until("started", 2));
        release();
        CHECK(third.response()["result"] == 1);
    }
}

TEST_CASE_METHOD(Calls, "concurrency(1) runs one call after another, and holds no worker for those who wait",
                 "[server]") {
    std::vector<PendingCall> calls;
    for (int i = 0; i < 8; ++i)  // more than there are workers
        calls.push_back(hold("hold_one"));
    REQUIRE(until("started"));
    CHECK(call("subtract", {3, 1}) == 2);
    release();
    for (PendingCall& pending : calls)
        CHECK(pending.response().contains("result"));
    CHECK(runs("peak") == 1);
}

TEST_CASE("control methods answer while all workers are busy", "[server]") {
    const OwnDaemon daemon({"--workers", "2"});
    std::vector<PendingCall> calls;
    for (int i = 0; i < 6; ++i)
        calls.push_back(daemon.hold());
    REQUIRE(daemon.until("started", 2));
    const Json task = daemon.submit("hold", {daemon.name});
    CHECK(daemon.serves());
    CHECK(daemon.totals()["workers"]["busy"] == 2);
    CHECK(daemon.call("task.get", {task})["state"] == "pending");
    CHECK(daemon.call("task.list")["tasks"].size() == 1);
    CHECK(daemon.call("task.cancel", {task})["state"] == "cancelled");
    CHECK(daemon.call("rpc.discover").contains("methods"));
    CHECK(daemon.call("session.open").contains("session"));
    CHECK(daemon.get("/healthz").status == 200);
    daemon.release();
    for (PendingCall& pending : calls)
        CHECK(pending.response().contains("result"));
}

TEST_CASE("none of 64 busy connections waits for a call that lasts", "[server]") {
    const OwnDaemon daemon;
    const std::string quick = call_object("release", {fresh_name()}).dump();  // runs on the connection's thread
    std::vector<HttpPeer> peers;
    for (int i = 0; i < 64; ++i)
        peers.emplace_back(daemon.port());
    HttpPeer& lasts = peers[20];
    for (int round = 0; round < 50; ++round) {
        for (HttpPeer& one : peers) {
            if (&one != &lasts) one.request("POST", "/jsonrpc", quick);
            if (&one == &lasts && round == 10)
                one.request("POST", "/jsonrpc", call_object("hold", {daemon.name}).dump());
        }
        for (HttpPeer& one : peers) {
            if (&one != &lasts) REQUIRE(one.read().status == 200);  // or it waits until somebody releases the name
        }
    }
    CHECK(daemon.until("started"));
    daemon.release();
    CHECK(lasts.read().status == 200);
}

TEST_CASE("tasks that wait leave an eighth of the queue to plain calls, and the error says so", "[server]") {
    const OwnDaemon daemon({"--workers", "2", "--queue", "16"});
    std::vector<Json> ids{daemon.submit("hold", {daemon.name})};
    REQUIRE(daemon.until("started"));
    for (int i = 0; i < 14; ++i)
        ids.push_back(daemon.submit("hold", {daemon.name}));
    const HttpReply rejected = daemon.post(call_object("task.submit", {"hold", {daemon.name}}).dump());
    CHECK(rejected.status == 503);
    const Json error = Json::parse(rejected.body)["error"];
    CHECK(error["code"] == -32001);
    CHECK(error["data"]["detail"].get<std::string>().find("2 of the 16 places") != std::string::npos);

    // Tasks never take the last worker: one call runs there, two wait.
    CHECK(daemon.call("subtract", {3, 1}) == 2);
    REQUIRE(eventually([&] { return daemon.totals()["workers"]["busy"] == 1; }));
    CHECK(daemon.runs("started") == 1);
    std::vector<PendingCall> calls;
    for (int i = 0; i < 3; ++i)
        calls.push_back(daemon.hold());
    REQUIRE(daemon.until("started", 2));
    REQUIRE(eventually([&] { return queued(daemon) == 16; }));
    CHECK(daemon.code("hold", {daemon.name}) == -32001);
    daemon.release();
    for (PendingCall& pending : calls)
        CHECK(pending.response().contains("result"));
    for (const Json& id : ids)
        CHECK(daemon.wait(id)["state"] == "completed");
}

TEST_CASE("a thousand clients in task.wait leave the server free, and each gets the end", "[server]") {
    allow_many_descriptors();
    const OwnDaemon daemon;
    const Json id = daemon.submit("hold", {daemon.name});
    std::vector<PendingCall> waiting;
    for (int i = 0; i < 1000; ++i)
        waiting.emplace_back(daemon.port(), "task.wait", Json{{"id", id}, {"timeout_ms", 30'000}});
    for (int i = 0; i < 20; ++i)
        CHECK(daemon.serves());
    CHECK(daemon.call("subtract", {3, 1}) == 2);
    daemon.release();
    int completed = 0;
    for (PendingCall& pending : waiting)
        completed += pending.response()["result"]["state"] == "completed" ? 1 : 0;
    CHECK(completed == 1000);
}

TEST_CASE("after a burst of calls at once the daemon gives its memory back", "[server]") {
    constexpr int kCalls = 1500;
    allow_many_descriptors();
    OwnDaemon daemon({"--workers", "4", "--queue", "4096"});
    const pid_t pid = daemon.child().pid();
    CHECK(daemon.serves());
    const std::uint64_t before = resident_bytes(pid);
    {
        std::vector<PendingCall> calls;
        for (int i = 0; i < kCalls; ++i)
            calls.push_back(daemon.hold());
        REQUIRE(eventually([&] { return queued(daemon) >= kCalls - 4; }));
        daemon.release();
        for (PendingCall& pending : calls)
            REQUIRE(pending.response().contains("result"));
    }
    // Threads without work end after 10 s, and the heap is trimmed within another 10 s.
    const std::uint64_t most = before + (std::uint64_t{48} << 20);
    for (int i = 0; i < 6 && resident_bytes(pid) > most; ++i)
        (void)eventually([&] { return resident_bytes(pid) <= most; });
    CHECK(resident_bytes(pid) <= most);
}
