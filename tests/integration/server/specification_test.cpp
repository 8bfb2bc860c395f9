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
    SECTION("one more is refused, and nothing of it runs") {
        const std::string name = fresh_name();
        batch += R"({"jsonrpc":"2.0","method":"hold","params":[")" + name + "\"]}]";
        const Json response = Json::parse(post(shared_daemon(), batch).body);
        CHECK(code_of(response) == -32600);
        CHECK(runs(shared_daemon(), name, "started") == 0);
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
