#include <catch2/catch_test_macros.hpp>

#include "integration/server/shared_daemon.hpp"

using namespace shared_tensor::test;

namespace {

Json submit(const std::string& method, const Json& params, Json more = Json::object()) {
    more["method"] = method;
    more["params"] = params;
    return call(shared_daemon(), "task.submit", more);
}

Json waited(const Json& id, int timeout_ms = 30'000) {
    return call(shared_daemon(), "task.wait", {{"id", id}, {"timeout_ms", timeout_ms}});
}

}  // namespace

TEST_CASE("a task runs, says how far it is, and keeps what the call would have answered", "[server]") {
    const int port = shared_daemon();
    const std::string name = fresh_name();
    const Json task = submit("hold", {name});
    const Json id = task["id"];
    CHECK(task["method"] == "hold");
    CHECK(id.get<std::string>().starts_with("t-"));
    REQUIRE(until(port, name, "started", 1));
    REQUIRE(eventually([&] { return call(port, "task.get", {id}).contains("progress"); }));

    const Json running = call(port, "task.get", {id});
    CHECK(running["state"] == "running");
    CHECK(running["progress"] == Json{{"fraction", 0.5}, {"message", "held"}});
    CHECK(waited(id, 1)["state"] == "running");
    CHECK(call_code(port, "task.result", {id}) == -32002);

    PendingCall waiting(port, "task.wait", {{"id", id}});
    call(port, "release", {name});
    CHECK(waiting.response()["result"]["state"] == "completed");
    CHECK(call(port, "task.result", {id}) == 0);
    const Json listed = call(port, "task.list", {{"state", "completed"}});
    CHECK(listed["tasks"][0]["id"] == id);
    CHECK(call(port, "task.cancel", {id})["state"] == "completed");
}

TEST_CASE("a task that fails shows the error and answers it", "[server]") {
    const Json id = submit("fail", {"broken"})["id"];
    const Json ended = waited(id);
    CHECK(ended["state"] == "failed");
    CHECK(ended["error"]["code"] == -32000);
    const Json response = respond(shared_daemon(), "task.result", {id});
    CHECK(code_of(response) == -32000);
    CHECK(response["error"]["data"]["message"] == "broken");
}

TEST_CASE("task.cancel ends a task at once and for good", "[server]") {
    const int port = shared_daemon();
    const std::string name = fresh_name();
    SECTION("while it runs: the function sees it") {
        const Json id = submit("hold", {name})["id"];
        REQUIRE(until(port, name, "started", 1));
        CHECK(call(port, "task.cancel", {id})["state"] == "cancelled");
        CHECK(until(port, name, "cancelled", 1));
        CHECK(call_code(port, "task.result", {id}) == -32004);
    }
    SECTION("even if its code ends later") {
        const Json id = submit("hold_deaf", {name})["id"];
        REQUIRE(until(port, name, "started", 1));
        CHECK(call(port, "task.cancel", {id})["state"] == "cancelled");
        call(port, "release", {name});
        REQUIRE(until(port, name, "ended", 1));
        CHECK(call(port, "task.get", {id})["state"] == "cancelled");
    }
    SECTION("before it runs: it never does") {
        const std::string first = fresh_name();
        PendingCall occupied(port, "hold_one", {first});
        REQUIRE(until(port, first, "started", 1));
        const Json id = submit("hold_one", {name})["id"];
        CHECK(call(port, "task.cancel", {id})["state"] == "cancelled");
        call(port, "release", {first});
        occupied.response();
        const std::string last = fresh_name();
        call(port, "release", {last});
        call(port, "hold_one", {last});
        CHECK(runs(port, name, "started") == 0);
    }
}

TEST_CASE("a task's deadline ends it, and its code sees that", "[server]") {
    const int port = shared_daemon();
    const std::string name = fresh_name();
    const Json id = submit("hold", {name}, {{"deadline_ms", 100}})["id"];
    const Json ended = waited(id);
    CHECK(ended["state"] == "failed");
    CHECK(ended["error"]["code"] == -32002);
    if (runs(port, name, "started") == 1) CHECK(until(port, name, "cancelled", 1));
}

TEST_CASE("a task's deadline does not end the equal call that shares its run", "[server]") {
    const int port = shared_daemon();
    const std::string name = fresh_name();
    const Json id = submit("hold_cached", {name}, {{"deadline_ms", 3000}})["id"];
    REQUIRE(until(port, name, "started", 1));
    PendingCall equal(port, "hold_cached", {name});
    CHECK(waited(id)["error"]["code"] == -32002);
    call(port, "release", {name});
    CHECK(equal.response()["result"] == 0);
}

TEST_CASE("a function for tasks rejects a plain call with the way to do it", "[server]") {
    const Json response = respond(shared_daemon(), "hold_task", {fresh_name()});
    CHECK(code_of(response) == -32600);
    CHECK(response.dump().find("task.submit") != std::string::npos);
    const std::string name = fresh_name();
    call(shared_daemon(), "release", {name});
    CHECK(waited(submit("hold_task", {name})["id"])["state"] == "completed");
}

TEST_CASE("what can't be submitted makes no task", "[server]") {
    const int port = shared_daemon();
    const std::size_t before = call(port, "task.list", {{"limit", 1000}})["tasks"].size();
    CHECK(call_code(port, "task.submit", {"nowhere"}) == -32601);
    CHECK(call_code(port, "task.submit", {"add", {1}}) == -32602);
    CHECK(call_code(port, "task.submit", {"server.ping"}) == -32601);
    CHECK(call(port, "task.list", {{"limit", 1000}})["tasks"].size() == before);
}

TEST_CASE("an unknown task is -32005 with the daemon's epoch", "[server]") {
    for (const char* method : {"task.get", "task.wait", "task.result", "task.cancel"}) {
        const Json response = respond(shared_daemon(), method, {"t-00000000000000000000000000000000"});
        CHECK(code_of(response) == -32005);
        CHECK(response["error"]["data"]["epoch"] == call(shared_daemon(), "server.ping")["epoch"]);
    }
}

TEST_CASE("task.list goes through all tasks page by page, newest first", "[server]") {
    std::vector<Json> ids;
    for (int i = 0; i < 5; ++i)
        ids.push_back(submit("get_data", Json::array())["id"]);
    Json page = call(shared_daemon(), "task.list", {{"limit", 2}});
    CHECK(page["tasks"][0]["id"] == ids[4]);
    CHECK(page["tasks"][1]["id"] == ids[3]);
    page = call(shared_daemon(), "task.list", {{"limit", 2}, {"cursor", page["next_cursor"]}});
    CHECK(page["tasks"][0]["id"] == ids[2]);
}

TEST_CASE("a task with no life after its end is gone", "[server]") {
    const Json id = submit("get_data", Json::array(), {{"ttl_ms", 0}})["id"];
    CHECK(eventually([&] { return call_code(shared_daemon(), "task.get", {id}) == -32005; }));
}

TEST_CASE("the waits of a batch share one bound of time", "[server]") {
    Daemon daemon(with_plugins({"--max-wait", "200ms"}));
    const std::string name = fresh_name();
    const Json id = call(daemon.port(), "task.submit", {"hold", {name}})["id"];
    Json batch = Json::array();
    for (int i = 0; i < 100; ++i)
        batch.push_back(call_object("task.wait", {{"id", id}, {"timeout_ms", 10'000}}, i));
    const Json answers = Json::parse(post(daemon.port(), batch.dump()).body);  // 20 s if each waited on its own
    CHECK(answers.size() == 100);
    CHECK(std::all_of(answers.begin(), answers.end(), [](const Json& answer) { return answer.contains("result"); }));
}
