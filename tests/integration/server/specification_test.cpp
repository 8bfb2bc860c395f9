#include <catch2/catch_test_macros.hpp>

#include "integration/server/shared_daemon.hpp"
#include "support/json_rpc_answers.hpp"
#include "support/json_rpc_examples.hpp"

using namespace shared_tensor::test;

namespace {

void replay(const JsonRpcExample& example) {
    INFO(example.name);
    const HttpReply reply = post(shared_daemon(), std::string(example.request));
    INFO(reply.body);
    CHECK(reply.status == (example.answer.empty() ? 204 : 200));
    CHECK(same_answer(example.answer, reply.body));
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

TEST_CASE("the daemon answers the specification's examples as written", "[server]") {
    for (const JsonRpcExample& example : kSpecificationExamples)
        replay(example);
}

TEST_CASE("the daemon keeps to the details that peers get wrong", "[server]") {
    for (const JsonRpcExample& example : kPeerDetails)
        replay(example);
}

TEST_CASE("the examples hold on one kept-alive connection", "[server]") {
    HttpPeer peer(shared_daemon());
    for (const JsonRpcExample& example : kSpecificationExamples) {
        INFO(example.name);
        peer.request("POST", "/jsonrpc", example.request);
        CHECK(same_answer(example.answer, peer.read().body));
    }
}

TEST_CASE("a batch beyond the bound of items is one error", "[server]") {
    std::string batch = "[";
    for (int i = 0; i < 1000; ++i)
        batch += R"({"jsonrpc":"2.0","method":"update"},)";
    SECTION("a thousand items are taken") {
        batch.back() = ']';
        CHECK(post(shared_daemon(), batch).status == 204);
    }
    SECTION("one more is rejected, and nothing of it runs") {
        const std::string name = fresh_name();
        batch += R"({"jsonrpc":"2.0","method":"hold","params":[")" + name + "\"]}]";
        const Json response = Json::parse(post(shared_daemon(), batch).body);
        CHECK(code_of(response) == -32600);
        CHECK(runs(shared_daemon(), name, "started") == 0);
    }
}

TEST_CASE("rpc.discover describes the daemon's own methods as they are", "[server]") {
    TemporaryFolder folder;
    const Daemon daemon({"--model-folder", folder.path()});  // else model.load says that there is none
    const Json document = call(daemon.port(), "rpc.discover");
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
        const Json answer = respond(daemon.port(), name, {{"no such", 1}});
        REQUIRE(code_of(answer) == -32602);
        const std::string expected = answer["error"]["data"]["expected"];
        CHECK(expected ==
              (names.empty() ? "no parameters: there are none" : "one of the parameters that there are: " + names));
    }
    CHECK(own == own_method_count());
}

TEST_CASE("rpc.discover has the schema of a tensor", "[server]") {
    const Json schema = call(shared_daemon(), "rpc.discover")["components"]["schemas"]["Tensor"];
    CHECK(schema["required"] == Json{"$tensor"});
    const Json inner = schema["properties"]["$tensor"];
    // A descriptor that the daemon made has these members only.
    const Json made = call(shared_daemon(), "scale", {{"$tensor", {{"data", {1.5, 2.5}}}}})["$tensor"];
    for (const auto& member : made.items())
        CHECK(inner["properties"].contains(member.key()));
    CHECK(inner["properties"]["dtype"]["enum"].size() == 22);
    CHECK(inner["anyOf"].size() == 6);
    for (const Json& place : inner["anyOf"])
        CHECK(inner["properties"].contains(place["required"][0].get<std::string>()));
}

TEST_CASE("server.info shows limits as they are in force", "[server]") {
    const Json limits = call(shared_daemon(), "server.info")["limits"];
    for (const auto& limit : limits.items()) {
        INFO(limit.key());
        CHECK(limit.value() > 0);  // 0 stands for a default that depends on the machine
    }
}

TEST_CASE("rpc.discover and /openrpc.json show the same document", "[server]") {
    const Json document = call(shared_daemon(), "rpc.discover");
    HttpPeer peer(shared_daemon());
    peer.request("GET", "/openrpc.json");
    CHECK(Json::parse(peer.read().body) == document);
    const auto greet = std::find_if(document["methods"].begin(), document["methods"].end(),
                                    [](const Json& method) { return method["name"] == "greet"; });
    REQUIRE(greet != document["methods"].end());
    CHECK((*greet)["params"][1]["schema"]["default"] == "Hello");
    CHECK((*greet)["params"][0]["required"] == true);
    CHECK((*greet)["params"][2]["required"] == false);
    CHECK((*greet)["summary"] == "Greets.");
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
