#include "runtime/functions/open_rpc.hpp"

#include <catch2/catch_test_macros.hpp>

#include "unit/runtime/service/call_helpers.hpp"

using namespace shared_tensor;
using namespace shared_tensor::test;
using namespace std::chrono_literals;

namespace {

Json document_of(const Registry& registry, const std::string& version = "1") {
    const runtime::FunctionTable functions(registry);
    return runtime::OpenRpc(functions, version).document()->json;
}

}  // namespace

TEST_CASE("the document tells of every function what a caller needs", "[service]") {
    Registry registry;
    registry.add(
        "f", [](int a, const std::string&) { return a * 1.0; }, arg("a"), arg("b") = "x", doc("Does."), concurrency(2),
        timeout(5s), cached(1s));
    registry.add(
        "a", [] {}, execution::task);
    const Json document = document_of(registry, "1.2.3");
    CHECK(document["openrpc"].get<std::string>().starts_with("1."));
    CHECK(document["info"]["version"] == "1.2.3");
    REQUIRE(document["methods"].size() == 2);
    CHECK(document["methods"][0]["name"] == "a");
    CHECK(document["methods"][0]["x-execution"] == "task");

    const Json& method = document["methods"][1];
    CHECK(method["summary"] == "Does.");
    CHECK(method["paramStructure"] == "either");
    CHECK(method["params"][0] == Json{{"name", "a"}, {"required", true}, {"schema", method["params"][0]["schema"]}});
    CHECK(method["params"][0]["schema"]["type"] == "integer");
    CHECK(method["params"][1]["required"] == false);
    CHECK(method["params"][1]["schema"]["default"] == "x");
    CHECK(method["result"]["schema"]["anyOf"][0]["type"] == "number");
    CHECK(method["x-concurrency"] == 2);
    CHECK(method["x-timeout-ms"] == 5000);
    CHECK(method["x-idempotent"] == true);
}

TEST_CASE("a server without functions has a document without methods", "[service]") {
    Registry registry;
    const Json document = document_of(registry);
    CHECK(document["methods"] == Json::array());
}

TEST_CASE("the server's own methods come after the functions, and its schemas are there", "[service]") {
    Registry registry;
    registry.add("z", [] {});
    const runtime::FunctionTable functions(registry);
    runtime::OpenRpc open_rpc(functions, "1", {{"Tensor", {{"type", "object"}}}});
    open_rpc.set_methods(Json::array({{{"name", "server.ping"}}}));
    const Json document = open_rpc.document()->json;
    REQUIRE(document["methods"].size() == 2);
    CHECK(document["methods"][0]["name"] == "z");
    CHECK(document["methods"][1]["name"] == "server.ping");
    CHECK(document["components"]["schemas"]["Tensor"]["type"] == "object");
}
