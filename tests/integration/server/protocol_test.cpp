// JSON-RPC at the daemon's door: the specification, arguments, and how the daemon describes itself.

#include <algorithm>
#include <catch2/catch_test_macros.hpp>

#include "integration/server/shared_daemon.hpp"
#include "support/json_rpc_examples.hpp"

using namespace shared_tensor::test;

namespace {

/// Whether two answers are equal for JSON-RPC. The responses of a batch may be in any order. An error may have `data`
/// that is not expected. An empty text equals only an empty text. Ids and results must have equal values and number
/// types.
bool same_answer(std::string_view expected_text, std::string_view actual_text) {
    if (expected_text.empty() || actual_text.empty()) return expected_text.empty() && actual_text.empty();
    const auto same = [](const Json& expected, Json actual) {
        const bool both_errors = expected.contains("error") && actual.contains("error") && actual["error"].is_object();
        if (both_errors && !expected["error"].contains("data")) actual["error"].erase("data");
        return expected.dump() == actual.dump();
    };
    const Json expected = Json::parse(expected_text), actual = Json::parse(actual_text, nullptr, false);
    if (!expected.is_array()) return same(expected, actual);
    if (!actual.is_array() || actual.size() != expected.size()) return false;
    std::vector<Json> left(actual.begin(), actual.end());
    return std::all_of(expected.begin(), expected.end(), [&](const Json& wanted) {
        const auto found = std::find_if(left.begin(), left.end(), [&](const Json& item) { return same(wanted, item); });
        if (found == left.end()) return false;
        left.erase(found);
        return true;
    });
}

/// The rows of the table of the daemon's methods in docs/protocol.md, and the two for WebSockets.
std::size_t own_method_count() {
    const std::string page = text_of_file(std::string(kSourceFolder) + "/docs/protocol.md");
    std::size_t begin = page.find("## Methods of the daemon");
    REQUIRE(begin != std::string::npos);
    const std::string table = page.substr(begin, page.find("They take their parameters", begin) - begin);
    std::size_t count = 2;
    for (std::size_t at = table.find("\n| `"); at != std::string::npos; at = table.find("\n| `", at + 1))
        ++count;
    return count + (table.find("`lease.release`, `lease.revoke`") != std::string::npos ? 1 : 0);
}

}  // namespace

TEST_CASE("the daemon answers the specification's examples, and what peers get wrong, on one connection", "[server]") {
    HttpPeer peer(shared_daemon());
    const auto replay = [&](const JsonRpcExample& example) {
        peer.request("POST", "/jsonrpc", example.request);
        const HttpReply reply = peer.read();
        INFO(example.name << ": " << reply.body);
        CHECK(reply.status == (example.answer.empty() ? 204 : 200));
        CHECK(same_answer(example.answer, reply.body));
    };
    for (const JsonRpcExample& example : kSpecificationExamples)
        replay(example);
    for (const JsonRpcExample& example : kPeerDetails)
        replay(example);
}

TEST_CASE("the comparison of answers tells them apart", "[server]") {
    CHECK(same_answer(R"([{"id":1},{"id":2}])", R"([{"id":2},{"id":1}])"));
    CHECK(same_answer(R"({"error":{"code":1}})", R"({"error":{"code":1,"data":{}}})"));
    CHECK_FALSE(same_answer(R"({"error":{"code":1}})", R"({"error":{"code":2}})"));
    CHECK_FALSE(same_answer(R"([{"id":1},{"id":1}])", R"([{"id":2},{"id":1}])"));
    CHECK_FALSE(same_answer(R"([{"id":1}])", R"({"id":1})"));
    for (const char* other : {R"({"id":1.0})", R"({"id":"1"})", "", "not JSON"})
        CHECK_FALSE(same_answer(R"({"id":1})", other));
    CHECK_FALSE(same_answer("", R"({"id":1})"));
}

TEST_CASE_METHOD(Calls, "a batch beyond the bound of items is one error", "[server]") {
    std::string batch = "[";
    for (int i = 0; i < 1000; ++i)
        batch += R"({"jsonrpc":"2.0","method":"update"},)";
    const std::string more = batch + R"({"jsonrpc":"2.0","method":"hold","params":[")" + name + "\"]}]";
    batch.back() = ']';
    CHECK(post(batch).status == 204);
    CHECK(code_of(Json::parse(post(more).body)) == -32600);  // nothing of it runs
    CHECK(runs("started") == 0);
}

TEST_CASE_METHOD(Calls, "texts that break parsers are parse errors with status 200", "[server]") {
    const std::string deep(200, '[');
    for (const std::string& text : {std::string(), std::string("{"), deep, deep + std::string(200, ']'),
                                    std::string(R"({"jsonrpc":"2.0","id":1e999})"), std::string("\xFF\xFE")}) {
        const HttpReply reply = post(text);
        CHECK(reply.status == 200);
        CHECK(code_of(Json::parse(reply.body)) == -32700);
    }
}

TEST_CASE_METHOD(Calls, "arguments go by position, by name, or are left out where there is a default", "[server]") {
    CHECK(call("greet", {"Ada", "Hi", "?"}) == "Hi, Ada?");
    CHECK(call("greet", {{"suffix", "."}, {"name", "Ada"}, {"greeting", "Hi"}}) == "Hi, Ada.");
    CHECK(call("greet", {"Ada", "Hi"}) == "Hi, Ada!");
    CHECK(call("greet", {{"name", "Ada"}, {"suffix", "."}}) == "Hello, Ada.");
    CHECK(call("greet", Json{{"name", "Ada"}, {"suffix", nullptr}}) == "Hello, Ada!");
}

TEST_CASE_METHOD(Calls, "wrong arguments are rejected with parameter, expected and got", "[server]") {
    struct Case {
        const char *method, *params;  // of the request; "": none
        const char *member, *value;   // of the error's data
    };
    for (const Case& one : std::initializer_list<Case>{
             {"greet", "[]", "parameter", "name"},
             {"greet", R"({"greeting":"Hi"})", "parameter", "name"},
             {"greet", "", "parameter", "name"},
             {"greet", "[null]", "parameter", "name"},
             {"greet", R"({"name":"Ada","nam":"Bob"})", "parameter", "nam"},
             {"subtract", "[1,2,3]", "expected", "2 arguments"},
             {"subtract", "[1,2,3]", "got", "3"},
             {"subtract", R"([1,"2"])", "parameter", "subtrahend"},
             {"subtract", R"([1,"2"])", "expected", nullptr},
             {"subtract", R"([1,"2"])", "got", nullptr},
             {"subtract", "[1.5,2]", "parameter", "minuend"},
             {"total", "[[1,2,300]]", "parameter", "numbers[2]"},
             // The daemon's own methods.
             {"task.get", "", "parameter", "id"},
             {"task.get", "[7]", "parameter", "id"},
             {"task.get", R"({"id":"t-1","x":1})", "parameter", "x"},
             {"task.list", R"({"limit":0})", "parameter", "limit"},
             {"task.list", R"({"state":"done"})", "parameter", "state"},
             {"task.wait", R"({"id":"t-1","timeout_ms":-1})", "parameter", "timeout_ms"},
             {"server.ping", "[1]", "got", "1"},
             {"task.submit", R"({"method":"add","params":3})", "parameter", "params"},
         }) {
        const std::string params = one.params;
        const Json response = respond(one.method, params.empty() ? Json() : Json::parse(params));
        INFO(one.method << params << ": " << response.dump());
        REQUIRE(code_of(response) == -32602);
        REQUIRE(response["error"]["data"].contains(one.member));
        if (one.value != nullptr) CHECK(response["error"]["data"][one.member] == one.value);
    }
    CHECK(code("hold", {name, 1}) == -32602);  // and does not run
    CHECK(runs("started") == 0);
}

TEST_CASE_METHOD(Calls, "any JSON value goes through as it was", "[server]") {
    const std::int64_t great = 9007199254740993;  // beyond 2^53
    CHECK(call("subtract", {great, 0}) == great);
    for (const char* text : {"null", "true", "-0.0", "1e300", "18446744073709551615", R"({"a":[{}],"":null})",
                             R"(["\u0000","é",""])", "[[[[[]]]]]"}) {
        const Json value = Json::parse(text);
        INFO(text);
        CHECK(call("echo", Json::array({value})).dump() == value.dump());
    }
    CHECK(call("echo", {std::string("a\0b", 3)}) == std::string("a\0b", 3));
    const std::string plain = std::string(R"({"jsonrpc":"2.0","id":1,"method":"echo","params":["a)") + '\0' + "b\"]}";
    CHECK(code_of(Json::parse(post(plain).body)) == -32700);
}

TEST_CASE_METHOD(Calls, "a Request-Timeout that is none is rejected", "[server]") {
    for (const char* value : {"0", "-1", "soon", "1.5", "86400001", "99999999999999999999", ""}) {
        INFO(value);
        CHECK(code("add", {1, 2}, {{"Request-Timeout", value}}) == -32602);
    }
}

TEST_CASE("rpc.discover describes the daemon's own methods as they are", "[server]") {
    TemporaryFolder folder;
    const OwnDaemon daemon({"--model-folder", folder.path()});  // else model.load says that there is none
    const Json document = daemon.call("rpc.discover");
    std::size_t own = 0;
    for (const Json& method : document["methods"]) {
        const std::string name = method["name"];
        if (!method.contains("x-builtin")) continue;
        ++own;
        INFO(name);
        CHECK_FALSE(method["summary"].get<std::string>().empty());
        CHECK(method["result"]["schema"].is_object());
        if (name == "task.watch" || name == "task.unwatch") continue;  // over a WebSocket only
        std::string names;
        for (const Json& parameter : method["params"])
            names.append(names.empty() ? "" : ", ").append(parameter["name"].get<std::string>());
        const Json answer = daemon.respond(name, {{"no such", 1}});
        REQUIRE(code_of(answer) == -32602);
        CHECK(answer["error"]["data"]["expected"] ==
              (names.empty() ? "no parameters: there are none" : "one of the parameters that there are: " + names));
    }
    CHECK(own == own_method_count());
}

TEST_CASE_METHOD(Calls, "rpc.discover describes functions, tensors and objects, and /openrpc.json is the same document",
                 "[server]") {
    const Json document = call("rpc.discover");
    CHECK(Json::parse(get("/openrpc.json").body) == document);
    const auto method = [&](const char* wanted) -> Json {
        for (const Json& one : document["methods"]) {
            if (one["name"] == wanted) return one;
        }
        return nullptr;
    };
    const Json greet = method("greet");
    CHECK(greet["params"][1]["schema"]["default"] == "Hello");
    CHECK(greet["params"][0]["required"] == true);
    CHECK(greet["params"][2]["required"] == false);
    CHECK(greet["summary"] == "Greets.");
    CHECK(method("hold_alone")["params"][0]["schema"]["x-object-type"] == "thing");
    CHECK(method("hold_alone")["params"][0]["schema"]["x-access"] == "exclusive");
    CHECK(method("name_of")["params"][0]["schema"]["x-access"] == "concurrent");
    CHECK(method("make_thing")["result"]["schema"]["required"] == Json({"$object"}));

    const Json any_of = document["components"]["schemas"]["Tensor"]["anyOf"];
    CHECK(any_of[1]["type"] == "array");
    const Json& schema = any_of[0];
    CHECK(schema["required"] == Json{"$tensor"});
    const Json inner = schema["properties"]["$tensor"];
    // A descriptor that the daemon made has these members only.
    const Json made = call("scale", {{"$tensor", {{"data", {1.5, 2.5}}}}})["$tensor"];
    for (const auto& member : made.items())
        CHECK(inner["properties"].contains(member.key()));
    CHECK(inner["properties"]["dtype"]["enum"].size() == 22);
    CHECK(inner["anyOf"].size() == 6);
    for (const Json& place : inner["anyOf"])
        CHECK(inner["properties"].contains(place["required"][0].get<std::string>()));
}
