#include <catch2/catch_test_macros.hpp>

#include "integration/server/shared_daemon.hpp"

using namespace shared_tensor::test;

TEST_CASE_METHOD(Calls, "a task runs, says how far it is, and keeps what the call would have answered", "[server]") {
    const Json task = call("task.submit", {"hold", {name}});
    const Json id = task["id"];
    CHECK(task["method"] == "hold");
    CHECK(id.get<std::string>().starts_with("t-"));
    REQUIRE(until("started"));
    REQUIRE(eventually([&] { return call("task.get", {id}).contains("progress"); }));

    const Json running = call("task.get", {id});
    CHECK(running["state"] == "running");
    CHECK(running["progress"] == Json{{"fraction", 0.5}, {"message", "held"}});
    CHECK(call("task.wait", {{"id", id}, {"timeout_ms", 1}})["state"] == "running");
    CHECK(code("task.result", {id}) == -32002);

    PendingCall waiting(port(), "task.wait", {{"id", id}});
    release();
    CHECK(waiting.response()["result"]["state"] == "completed");
    CHECK(call("task.result", {id}) == 0);
    CHECK(call("task.list", {{"state", "completed"}})["tasks"][0]["id"] == id);
    CHECK(call("task.cancel", {id})["state"] == "completed");
}

TEST_CASE_METHOD(Calls, "a task that fails shows the error and answers it", "[server]") {
    const Json id = submit("fail", {"broken"});
    const Json ended = wait(id);
    CHECK(ended["state"] == "failed");
    CHECK(ended["error"]["code"] == -32000);
    const Json response = respond("task.result", {id});
    CHECK(code_of(response) == -32000);
    CHECK(response["error"]["data"]["message"] == "broken");
}

TEST_CASE_METHOD(Calls, "task.cancel ends a task at once and for good", "[server]") {
    SECTION("while it runs: the function sees it") {
        const Json id = submit("hold", {name});
        REQUIRE(until("started"));
        CHECK(call("task.cancel", {id})["state"] == "cancelled");
        CHECK(until("cancelled"));
        CHECK(code("task.result", {id}) == -32004);
    }
    SECTION("even if its code ends later") {
        const Json id = submit("hold_deaf", {name});
        REQUIRE(until("started"));
        CHECK(call("task.cancel", {id})["state"] == "cancelled");
        release();
        REQUIRE(until("ended"));
        CHECK(call("task.get", {id})["state"] == "cancelled");
    }
    SECTION("before it runs: it never does") {
        const Calls first, last;
        PendingCall occupied = first.hold("hold_one");
        REQUIRE(first.until("started"));
        CHECK(call("task.cancel", {submit("hold_one", {name})})["state"] == "cancelled");
        first.release();
        occupied.response();
        last.release();
        last.hold("hold_one").response();
        CHECK(runs("started") == 0);
    }
}

TEST_CASE_METHOD(Calls, "a task's deadline ends it, and its code sees that", "[server]") {
    const Json ended = wait(submit("hold", {name}, {{"deadline_ms", 100}}));
    CHECK(ended["state"] == "failed");
    CHECK(ended["error"]["code"] == -32002);
    if (runs("started") == 1) CHECK(until("cancelled"));
}

TEST_CASE_METHOD(Calls, "a task's deadline does not end the equal call that shares its run", "[server]") {
    const Json id = submit("hold_cached", {name}, {{"deadline_ms", 6000}});
    REQUIRE(until("started"));
    PendingCall equal = hold("hold_cached");
    CHECK(wait(id)["error"]["code"] == -32002);
    release();
    CHECK(equal.response()["result"] == 0);
}

TEST_CASE_METHOD(Calls, "a function for tasks rejects a plain call with the way to do it", "[server]") {
    const Json response = respond("hold_task", {fresh_name()});
    CHECK(code_of(response) == -32600);
    CHECK(response.dump().find("task.submit") != std::string::npos);
    release();
    CHECK(wait(submit("hold_task", {name}))["state"] == "completed");
}

TEST_CASE_METHOD(Calls, "what can't be submitted makes no task, and an unknown task is -32005 with the daemon's epoch",
                 "[server]") {
    const auto count = [&] { return call("task.list", {{"limit", 1000}})["tasks"].size(); };
    const std::size_t before = count();
    CHECK(code("task.submit", {"nowhere"}) == -32601);
    CHECK(code("task.submit", {"add", {1}}) == -32602);
    CHECK(code("task.submit", {"server.ping"}) == -32601);
    CHECK(count() == before);
    for (const char* method : {"task.get", "task.wait", "task.result", "task.cancel"}) {
        const Json response = respond(method, {"t-00000000000000000000000000000000"});
        CHECK(code_of(response) == -32005);
        CHECK(response["error"]["data"]["epoch"] == call("server.ping")["epoch"]);
    }
}

TEST_CASE_METHOD(Calls, "task.list goes through all tasks page by page, newest first", "[server]") {
    std::vector<Json> ids;
    for (int i = 0; i < 5; ++i)
        ids.push_back(submit("get_data", Json::array()));
    Json page = call("task.list", {{"limit", 2}});
    CHECK(page["tasks"][0]["id"] == ids[4]);
    CHECK(page["tasks"][1]["id"] == ids[3]);
    page = call("task.list", {{"limit", 2}, {"cursor", page["next_cursor"]}});
    CHECK(page["tasks"][0]["id"] == ids[2]);
}

TEST_CASE_METHOD(Calls, "a task with no life after its end is gone", "[server]") {
    const Json id = submit("get_data", Json::array(), {{"ttl_ms", 0}});
    CHECK(eventually([&] { return code("task.get", {id}) == -32005; }));
}

TEST_CASE("the waits of a batch share one bound of time", "[server]") {
    const OwnDaemon daemon({"--max-wait", "200ms"});
    const Json id = daemon.submit("hold", {daemon.name});
    Json batch = Json::array();
    for (int i = 0; i < 100; ++i)
        batch.push_back(call_object("task.wait", {{"id", id}, {"timeout_ms", 10'000}}, i));
    const Json answers = Json::parse(daemon.post(batch.dump()).body);  // 20 s if each waited on its own
    CHECK(answers.size() == 100);
    CHECK(std::all_of(answers.begin(), answers.end(), [](const Json& answer) { return answer.contains("result"); }));
}
