#include "runtime/functions/arguments.hpp"

#include <catch2/catch_test_macros.hpp>

#include "unit/runtime/service/call_helpers.hpp"

using namespace shared_tensor;
using namespace shared_tensor::test;
using runtime::ArgumentNodes;

namespace {

const FunctionRecord& function() {
    static Registry registry;
    if (registry.size() == 0) {
        registry.add(
            "f", [](int, int, const std::optional<int>&) {}, arg("a"), arg("b") = 2, arg("c"));
    }
    return *registry.find("f");
}

/// Which of the parameters got a value, or parameter/expected/got of the rejection.
std::string matched(const char* params) {
    const Json json = Json::parse(params);
    const auto result = runtime::match_arguments(function(), json);
    if (const auto* error = std::get_if<json_rpc::Error>(&result)) {
        return error->data["parameter"].get<std::string>() + '/' + error->data["expected"].get<std::string>() + '/' +
               error->data["got"].get<std::string>();
    }
    std::string text;
    for (const ValueSource::Node node : std::get<ArgumentNodes>(result))
        text += node == nullptr ? "-" : static_cast<const Json*>(node)->dump();
    return text;
}

std::string key(const Json& json, bool import = false) {
    FakePort port;
    const codec::JsonSource source(port);
    if (import) ValueReader(source, codec::JsonSource::node(json)).tensor();
    return runtime::arguments_key({codec::JsonSource::node(json), nullptr}, source, runtime::Digests::compute).text;
}

}  // namespace

TEST_CASE("arguments are laid beside their parameters", "[service]") {
    CHECK(matched("[1, 5, 6]") == "156");
    CHECK(matched("[1]") == "1--");
    CHECK(matched(R"({"c": 3, "a": 1})") == "1-3");
    CHECK(matched("[null]") == "null--");
}

TEST_CASE("missing, surplus and unknown arguments are rejected by name", "[service]") {
    CHECK(matched("[]") == "a/a value: the parameter is required/nothing");
    CHECK(matched("null") == "a/a value: the parameter is required/nothing");
    CHECK(matched(R"({"b": 1})") == "a/a value: the parameter is required/nothing");
    CHECK(matched("[1, 2, 3, 4]") == "3/1 to 3 arguments/4");
    CHECK(matched(R"({"a": 1, "d": 2})") == "d/the parameters a, b, c/an unknown parameter");
}

TEST_CASE("different arguments have different keys", "[service]") {
    const char* values[] = {"1",     "1.0",       "\"1\"",       "null",    "true",          "[1]",       "[[1]]",
                            "[1,1]", "{\"a\":1}", "{\"a\":[1]}", "\"a,b\"", "[\"a\",\"b\"]", "[\"a,b\"]", "-0.0",
                            "0.0",   "0",         "[]",          "{}",      "\"\""};
    std::vector<std::string> keys;
    for (const char* value : values)
        keys.push_back(key(Json::parse(value)));
    for (std::size_t i = 0; i < keys.size(); ++i) {
        for (std::size_t j = 0; j < i; ++j) {
            INFO(values[i] << " and " << values[j]);
            CHECK(keys[i] != keys[j]);
        }
    }
}

TEST_CASE("members in another order are the same arguments", "[service]") {
    CHECK(key(Json::parse(R"({"a":1,"b":2})")) == key(Json::parse(R"({"b":2,"a":1})")));
}
