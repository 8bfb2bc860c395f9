// {"$ref": ...} in requests, as any client may write it.

#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <string>

#include "integration/server/shared_daemon.hpp"

using namespace shared_tensor::test;

namespace {

Json item(const Json& id) { return {{"$ref", {{"item", id}}}}; }
Json tensor(const Json& data) { return {{"$tensor", {{"dtype", "float32"}, {"data", data}}}}; }

Json batch(const std::vector<Json>& requests, const HeaderList& headers = {}) {
    return Json::parse(post(shared_daemon(), Json(requests).dump(), headers).body);
}

}  // namespace

TEST_CASE("items run as soon as those that they name have ended, whatever else runs", "[server][refs]") {
    const std::string slow = fresh_name(), mine = fresh_name();
    HttpPeer peer(shared_daemon());
    Json requests =
        Json::array({call_object("hold", {slow}, "slow"), call_object("scale", {tensor({1, 2}), 2}, 1),
                     call_object("scale", {item(1), 3}, 2), call_object("scale", {item(2), 4}, 3),
                     call_object("echo", Json::array({Json{{"all", Json::array({item(1)})}}}), "wrong type"),
                     call_object("echo", Json::array({Json{{"deep", Json::array({1, item("text")})}}}), "early"),
                     call_object("echo", {"words"}, "text"),
                     call_object("hold", Json::array({Json{{"$ref", {{"item", "name"}}}}}), "last"),
                     call_object("echo", {mine}, "name")});
    std::swap(requests[5], requests[6]);
    std::swap(requests[7], requests[8]);
    peer.request("POST", "/jsonrpc", requests.dump());
    REQUIRE(until(shared_daemon(), mine, "running", 1));  // though the slow one has not ended
    CHECK(runs(shared_daemon(), slow, "ended") == 0);
    call(shared_daemon(), "release", {slow});
    call(shared_daemon(), "release", {mine});
    const Json answers = Json::parse(peer.read().body);
    REQUIRE(answers.size() == 9);
    CHECK(answers[0]["result"] == 0);
    CHECK(answers[2]["result"]["$tensor"]["data"] == Json({6, 12}));
    CHECK(answers[3]["result"]["$tensor"]["data"] == Json({24, 48}));
    CHECK(answers[4]["error"]["code"] == -32602);
    CHECK(answers[6]["result"] == Json{{"deep", {1, "words"}}});
    CHECK(answers[8]["result"] == 0);
}

TEST_CASE("an item whose input failed is -32010, and so is what names it", "[server][refs]") {
    const Json answers = batch({call_object("throw_error", Json::array(), 1), call_object("echo", {item(1)}, 2),
                                call_object("echo", {item(2)}, 3), call_object("nobody", Json::array(), 4),
                                call_object("echo", {item(4)}, 5), call_object("echo", {"well"}, 6)});
    CHECK(answers[0]["error"]["code"] == -32000);
    CHECK(answers[1]["error"] == Json{{"code", -32010}, {"message", "Input failed"}, {"data", {{"item", 1}}}});
    CHECK(answers[2]["error"]["data"] == Json{{"item", 2}});
    CHECK(answers[4]["error"]["data"] == Json{{"item", 4}});
    CHECK(answers[5]["result"] == "well");
}

TEST_CASE("an input that is too late fails what names it", "[server][refs]") {
    const std::string name = fresh_name();
    Json late = call_object("hold", {name}, 1);
    late["meta"] = {{"timeout_ms", 100}};
    const Json answers = batch({late, call_object("echo", {item(1)}, 2)});
    CHECK(answers[0]["error"]["code"] == -32002);
    CHECK(answers[1]["error"]["code"] == -32010);
}

TEST_CASE("a deadline of the message counts from its arrival, also for items that wait", "[server][refs]") {
    const std::string name = fresh_name();
    const auto begin = std::chrono::steady_clock::now();
    const Json answers = batch(
        {call_object("sleep", {1.2}, 1), call_object("hold", {name}, 2),
         call_object("hold", Json::array({Json{{"$ref", {{"item", 1}}}}}), 3), call_object("sleep", {item(1)}, 4)},
        {{"Request-Timeout", "2000"}});
    CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(20));
    CHECK(answers[0].contains("result"));
    CHECK(answers[1]["error"]["code"] == -32002);
    CHECK(answers[2]["error"]["code"] == -32602);  // a number is no name
    CHECK(answers[3]["error"]["code"] == -32002);
}

TEST_CASE("what names no single earlier item is rejected with the reason", "[server][refs]") {
    const Json answers =
        batch({call_object("echo", {item(9)}, 1), call_object("echo", {1}, 2), call_object("echo", {1}, 2),
               call_object("echo", {item(2)}, 3), call_object("echo", {item(5)}, 4), call_object("echo", {1}, 5),
               call_object("echo", {item(nullptr)}, 6), call_object("echo", {Json{{"$ref", 7}}}, 7)});
    const auto got = [&](std::size_t place) { return answers[place]["error"]["data"]["got"]; };
    CHECK(got(0) == "9, which no item has (notifications have none)");
    CHECK(got(3) == "2, which several items have");
    CHECK(got(4) == "5, a later item");
    CHECK(got(6) == "null, which names nothing");
    CHECK(code_of(answers[7]) == -32602);
    CHECK(call_code(shared_daemon(), "echo", {item(1)}) == -32602);
}

TEST_CASE("methods of the daemon take references in a task's params, and may be named", "[server][refs]") {
    const Json answers = batch({call_object("echo", {"for the task"}, 1),
                                call_object("task.submit", {{"method", "echo"}, {"params", Json::array({item(1)})}}, 2),
                                call_object("echo", {item(2)}, 3), call_object("server.ping", Json::array(), 4),
                                call_object("echo", {item(4)}, 5)});
    const std::string id = answers[1]["result"]["id"];
    CHECK(answers[2]["result"]["id"] == id);
    CHECK(answers[4]["result"] == answers[3]["result"]);
    CHECK(call(shared_daemon(), "task.result", {{"id", id}, {"timeout_ms", 20000}}) == "for the task");
    const Json waited =
        batch({call_object("task.result", {{"id", id}, {"timeout_ms", 20000}}, 1), call_object("echo", {item(1)}, 2)});
    CHECK(waited[1]["result"] == "for the task");
}

TEST_CASE("notifications may name items", "[server][refs]") {
    const std::string name = fresh_name();
    Json told = call_object("hold", Json::array({Json{{"$ref", {{"item", 1}}}}}));
    told.erase("id");
    const Json answers = batch({call_object("echo", {name}, 1), told});
    CHECK(answers.size() == 1);
    CHECK(until(shared_daemon(), name, "running", 1));
    call(shared_daemon(), "release", {name});
}

TEST_CASE("leases, names and handles that are not there are -32005 of their kind", "[server][refs]") {
    const auto kind = [](const Json& argument) {
        const Json error = respond(shared_daemon(), "echo", Json::array({argument}))["error"];
        return error["code"] == -32005 ? error["data"]["kind"].get<std::string>() : error.dump();
    };
    CHECK(kind({{"$ref", "l-1"}}) == "lease");
    CHECK(kind({{"$ref", "no/such/name"}}) == "tensor");
    const Json handle{{"$object", {{"id", "o-1"}}}};
    CHECK(call_code(shared_daemon(), "name_of", Json::array({handle})) == -32005);
}

TEST_CASE("a chain of a hundred items comes to its end", "[server][refs]") {
    std::vector<Json> requests{call_object("echo", {0}, 0)};
    for (int i = 1; i < 100; ++i)
        requests.push_back(call_object(i % 2 == 0 ? "add" : "subtract", {item(i - 1), i % 2 == 0 ? 3 : 1}, i));
    const Json answers = batch(requests);
    REQUIRE(answers.size() == 100);
    CHECK(answers[99]["result"] == 97);
}

TEST_CASE("one sees and releases one's own objects", "[server][objects]") {
    const std::string name = fresh_name();
    const Json handle = call(shared_daemon(), "make_thing", {name});
    const std::string id = handle["$object"]["id"];
    CHECK(handle["$object"]["type"] == "thing");
    CHECK(call(shared_daemon(), "name_of", Json::array({handle})) == name);
    CHECK(call_code(shared_daemon(), "name_of", Json::array({Json{{"$object", {{"id", id}, {"type", "other"}}}}})) ==
          -32602);
    CHECK(call_code(shared_daemon(), "name_of", Json::array({Json{{"$object", id}}})) == -32602);
    const Json info = call(shared_daemon(), "object.info", {{"id", id}});
    CHECK(info["type"] == "thing");
    CHECK(info["uses"].get<int>() >= 1);
    CHECK(info["expires_in_ms"].get<int>() > 0);
    bool listed = false;
    const Json list = call(shared_daemon(), "object.list")["objects"];
    for (const Json& one : list)
        listed = listed || one["id"] == id;
    CHECK(listed);
    CHECK(call(shared_daemon(), "object.release", {{"ids", {id, "o-2"}}})["released"] == 1);
    CHECK(runs(shared_daemon(), name, "ended") == 1);
    CHECK(call_code(shared_daemon(), "object.info", {{"id", id}}) == -32005);
    CHECK(call_code(shared_daemon(), "object.release", Json::object()) == -32602);
    CHECK(call_code(shared_daemon(), "object.release", {{"ids", {1}}}) == -32602);
}

TEST_CASE("another principal's handle is as if it were not there; an admin sees it", "[server][objects]") {
    TemporaryFolder folder;
    const std::string tokens = folder.write("tokens",
                                            "anna:anna-0123456789abcdef\n"
                                            "ben:ben-0123456789abcdef\n"
                                            "root:root-0123456789abcdef:admin\n");
    const Daemon daemon(with_plugins({"--token-file", tokens}));
    const auto as = [](const char* who) {
        return HeaderList{{"Authorization", std::string("Bearer ") + who + "-0123456789abcdef"}};
    };
    const Json handle = call(daemon.port(), "make_thing", {"annas"}, as("anna"));
    const Json params = Json::array({handle});
    const std::string id = handle["$object"]["id"];
    CHECK(call(daemon.port(), "name_of", params, as("anna")) == "annas");
    CHECK(call_code(daemon.port(), "name_of", params, as("ben")) == -32005);
    CHECK(call(daemon.port(), "object.list", nullptr, as("ben"))["objects"].empty());
    CHECK(call(daemon.port(), "object.release", {{"ids", {id}}}, as("ben"))["released"] == 0);
    CHECK(call(daemon.port(), "object.list", nullptr, as("root"))["objects"][0]["owner"] == "token:anna");
    CHECK(call(daemon.port(), "object.release", {{"ids", {id}}}, as("root"))["released"] == 1);
    CHECK(call_code(daemon.port(), "name_of", params, as("anna")) == -32005);
}

TEST_CASE("rpc.discover tells of objects", "[server][objects]") {
    for (const Json& method : call(shared_daemon(), "rpc.discover")["methods"]) {
        if (method["name"] == "hold_alone") {
            CHECK(method["params"][0]["schema"]["x-object-type"] == "thing");
            CHECK(method["params"][0]["schema"]["x-access"] == "exclusive");
        }
        if (method["name"] == "name_of") CHECK(method["params"][0]["schema"]["x-access"] == "concurrent");
        if (method["name"] == "make_thing") CHECK(method["result"]["schema"]["required"] == Json({"$object"}));
    }
}
