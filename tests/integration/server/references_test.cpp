// {"$ref": ...} and {"$object": ...} in requests, as any client may write it.

#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <string>

#include "integration/server/shared_daemon.hpp"

using namespace shared_tensor::test;

namespace {

Json item(const Json& id) { return {{"$ref", {{"item", id}}}}; }
Json tensor(const Json& data) { return {{"$tensor", {{"dtype", "float32"}, {"data", data}}}}; }
Json echo(const Json& value, const Json& id) { return call_object("echo", Json::array({value}), id); }

Json batch(const std::vector<Json>& requests, const HeaderList& headers = {}) {
    return Json::parse(post(shared_daemon(), Json(requests).dump(), headers).body);
}

}  // namespace

TEST_CASE("items run as soon as those that they name have ended, whatever else runs", "[server][refs]") {
    const Calls slow, mine;
    HttpPeer peer(shared_daemon());
    const Json requests{call_object("hold", {slow.name}, "slow"),
                        call_object("scale", {tensor({1, 2}), 2}, 1),
                        call_object("scale", {item(1), 3}, 2),
                        call_object("scale", {item(2), 4}, 3),
                        echo({{"all", Json::array({item(1)})}}, "wrong type"),
                        echo("words", "text"),
                        echo({{"deep", Json::array({1, item("text")})}}, "late"),
                        echo(mine.name, "name"),
                        call_object("hold", Json::array({item("name")}), "last")};
    peer.request("POST", "/jsonrpc", requests.dump());
    REQUIRE(mine.until("running"));  // though the slow one has not ended
    CHECK(slow.runs("ended") == 0);
    slow.release();
    mine.release();
    const Json answers = Json::parse(peer.read().body);
    REQUIRE(answers.size() == 9);
    CHECK(answers[0]["result"] == 0);
    CHECK(answers[2]["result"]["$tensor"]["data"] == Json({6, 12}));
    CHECK(answers[3]["result"]["$tensor"]["data"] == Json({24, 48}));
    CHECK(code_of(answers[4]) == -32602);
    CHECK(answers[6]["result"] == Json{{"deep", {1, "words"}}});
    CHECK(answers[8]["result"] == 0);
}

TEST_CASE_METHOD(Calls, "an item whose input failed or is too late is -32010, and so is what names it",
                 "[server][refs]") {
    const Json answers = batch({call_object("throw_error", Json::array(), 1), echo(item(1), 2), echo(item(2), 3),
                                call_object("nobody", Json::array(), 4), echo(item(4), 5), echo("well", 6)});
    CHECK(code_of(answers[0]) == -32000);
    CHECK(answers[1]["error"] == Json{{"code", -32010}, {"message", "Input failed"}, {"data", {{"item", 1}}}});
    CHECK(answers[2]["error"]["data"] == Json{{"item", 2}});
    CHECK(answers[4]["error"]["data"] == Json{{"item", 4}});
    CHECK(answers[5]["result"] == "well");
    Json late = call_object("hold", {name}, 1);
    late["meta"] = {{"timeout_ms", 100}};
    const Json after = batch({late, echo(item(1), 2)});
    CHECK(code_of(after[0]) == -32002);
    CHECK(code_of(after[1]) == -32010);
}

TEST_CASE("results that items name again and again are bounded together", "[server][refs]") {
    const OwnDaemon daemon({"--max-reply-json-bytes", "1M"});
    std::vector<Json> requests{echo(std::string(1000, 'x'), 0)};
    while (requests.size() < 40) {  // each has the one before twice
        const Json before = item(requests.size() - 1);
        requests.push_back(echo({before, before}, requests.size()));
    }
    const Json answers = Json::parse(daemon.post(Json(requests).dump()).body);
    CHECK(answers[5].contains("result"));
    std::size_t first = 0;
    while (first < answers.size() && answers[first].contains("result"))
        ++first;
    REQUIRE(first < 12);
    CHECK(code_of(answers[first]) == -32003);
    CHECK(answers[first]["error"]["data"]["detail"].get<std::string>().find("references") != std::string::npos);
    CHECK(code_of(answers[39]) == -32010);
    CHECK(daemon.serves());
}

TEST_CASE_METHOD(Calls, "a deadline of the message counts from its arrival, also for items that wait",
                 "[server][refs]") {
    const auto begin = std::chrono::steady_clock::now();
    const Json answers = batch({call_object("sleep", {2.6}, 1), call_object("hold", {name}, 2),
                                call_object("hold", Json::array({item(1)}), 3), call_object("sleep", {item(1)}, 4)},
                               {{"Request-Timeout", "5000"}});
    CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(20));
    CHECK(answers[0].contains("result"));
    CHECK(code_of(answers[1]) == -32002);
    CHECK(code_of(answers[2]) == -32602);  // a number is no name
    CHECK(code_of(answers[3]) == -32002);
}

TEST_CASE("what names no single earlier item is rejected with the reason", "[server][refs]") {
    const Json answers = batch({echo(item(9), 1), echo(1, 2), echo(1, 2), echo(item(2), 3), echo(item(5), 4),
                                echo(1, 5), echo(item(nullptr), 6), echo({{"$ref", 7}}, 7)});
    const auto got = [&](std::size_t place) { return answers[place]["error"]["data"]["got"]; };
    CHECK(got(0) == "9, which no item has (notifications have none)");
    CHECK(got(3) == "2, which several items have");
    CHECK(got(4) == "5, a later item");
    CHECK(got(6) == "null, which names nothing");
    CHECK(code_of(answers[7]) == -32602);
    CHECK(call_code(shared_daemon(), "echo", {item(1)}) == -32602);
}

TEST_CASE_METHOD(Calls, "methods of the daemon take references in a task's params, and may be named",
                 "[server][refs]") {
    const Json answers = batch({echo("for the task", 1),
                                call_object("task.submit", {{"method", "echo"}, {"params", Json::array({item(1)})}}, 2),
                                echo(item(2), 3), call_object("server.ping", Json::array(), 4), echo(item(4), 5)});
    const Json result{{"id", answers[1]["result"]["id"]}, {"timeout_ms", 20000}};
    CHECK(answers[2]["result"]["id"] == result["id"]);
    CHECK(answers[4]["result"] == answers[3]["result"]);
    CHECK(call("task.result", result) == "for the task");
    CHECK(batch({call_object("task.result", result, 1), echo(item(1), 2)})[1]["result"] == "for the task");
}

TEST_CASE_METHOD(Calls, "notifications may name items", "[server][refs]") {
    Json told = call_object("hold", Json::array({item(1)}));
    told.erase("id");
    CHECK(batch({echo(name, 1), told}).size() == 1);
    CHECK(until("running"));
    release();
}

TEST_CASE_METHOD(Calls, "leases, names and handles that are not there are -32005 of their kind", "[server][refs]") {
    const auto kind = [&](const Json& argument) {
        const Json error = respond("echo", Json::array({argument}))["error"];
        return error["code"] == -32005 ? error["data"]["kind"].get<std::string>() : error.dump();
    };
    CHECK(kind({{"$ref", "l-1"}}) == "lease");
    CHECK(kind({{"$ref", "no/such/name"}}) == "tensor");
    CHECK(code("name_of", Json{{"$object", {{"id", "o-1"}}}}) == -32005);
}

TEST_CASE("a chain of a hundred items comes to its end", "[server][refs]") {
    std::vector<Json> requests{echo(0, 0)};
    for (int i = 1; i < 100; ++i)
        requests.push_back(call_object(i % 2 == 0 ? "add" : "subtract", {item(i - 1), i % 2 == 0 ? 3 : 1}, i));
    const Json answers = batch(requests);
    REQUIRE(answers.size() == 100);
    CHECK(answers[99]["result"] == 97);
}

TEST_CASE_METHOD(Calls, "one sees and releases one's own objects", "[server][objects]") {
    const Json handle = call("make_thing", {name});
    const std::string id = handle["$object"]["id"];
    CHECK(handle["$object"]["type"] == "thing");
    CHECK(call("name_of", handle) == name);
    CHECK(code("name_of", Json{{"$object", {{"id", id}, {"type", "other"}}}}) == -32602);
    CHECK(code("name_of", Json{{"$object", id}}) == -32602);
    const Json info = call("object.info", {{"id", id}});
    CHECK(info["type"] == "thing");
    CHECK(info["uses"].get<int>() >= 1);
    CHECK(info["expires_in_ms"].get<int>() > 0);
    const Json list = call("object.list")["objects"];
    CHECK(std::any_of(list.begin(), list.end(), [&](const Json& one) { return one["id"] == id; }));
    CHECK(call("object.release", {{"ids", {id, "o-2"}}})["released"] == 1);
    CHECK(until("ended"));  // as soon as the call that used it last lets go
    CHECK(code("object.info", {{"id", id}}) == -32005);
    CHECK(code("object.release", Json::object()) == -32602);
    CHECK(code("object.release", {{"ids", {1}}}) == -32602);
}

TEST_CASE("another principal's handle is as if it were not there; an admin sees it", "[server][objects]") {
    const TokenDaemon daemon(token("anna") + token("ben") + token("root", ":admin"));
    const Json handle = daemon.call("make_thing", {"annas"}, bearer('a'));
    const Json ids{{"ids", {handle["$object"]["id"]}}};
    CHECK(daemon.call("name_of", handle, bearer('a')) == "annas");
    CHECK(daemon.code("name_of", handle, bearer('b')) == -32005);
    CHECK(daemon.call("object.list", nullptr, bearer('b'))["objects"].empty());
    CHECK(daemon.call("object.release", ids, bearer('b'))["released"] == 0);
    CHECK(daemon.call("object.list", nullptr, bearer('r'))["objects"][0]["owner"] == "token:anna");
    CHECK(daemon.call("object.release", ids, bearer('r'))["released"] == 1);
    CHECK(daemon.code("name_of", handle, bearer('a')) == -32005);
}
