// Arguments of a call, their key, and the items of a batch that they name.

#include "runtime/functions/arguments.hpp"

#include <catch2/catch_test_macros.hpp>
#include <set>
#include <string>
#include <vector>

#include "unit/runtime/service/call_helpers.hpp"

using namespace shared_tensor;
using namespace shared_tensor::test;

namespace {

std::string key(const char* text) {
    const Json json = Json::parse(text);
    FakePort port;
    const codec::JsonSource source(port);
    return runtime::arguments_key({codec::JsonSource::node(json), nullptr}, source, runtime::Digests::compute).text;
}

Json request(const Json& id, const Json& params) { return {{"id", id}, {"params", params}}; }
Json item(const Json& id) { return {{"$ref", {{"item", id}}}}; }

/// The places that the last of these requests names, or why it may not.
std::string inputs_of_last(const std::vector<Json>& items) {
    std::vector<json_rpc::Request> requests;
    for (const Json& item : items)
        requests.push_back({"f", item["params"], item["id"], nullptr});
    std::vector<const json_rpc::Request*> pointers{nullptr};  // an item that is no request
    for (const auto& one : requests)
        pointers.push_back(&one);
    const auto inputs = runtime::find_inputs(pointers).back();
    if (inputs.error) return inputs.error->data["got"].get<std::string>();
    std::string text;
    for (const std::size_t place : inputs.items)
        text += std::to_string(place) + " ";
    return text;
}

}  // namespace

TEST_CASE("different arguments have different keys, and members in another order are the same", "[service]") {
    const std::vector<const char*> values{
        "1",       "1.0",           "\"1\"",     "null", "true", "[1]", "[[1]]", "[1,1]", "{\"a\":1}", "{\"a\":[1]}",
        "\"a,b\"", "[\"a\",\"b\"]", "[\"a,b\"]", "-0.0", "0.0",  "0",   "[]",    "{}",    "\"\""};
    std::set<std::string> keys;
    for (const char* value : values)
        keys.insert(key(value));
    CHECK(keys.size() == values.size());
    CHECK(key(R"({"a":1,"b":2})") == key(R"({"b":2,"a":1})"));
}

TEST_CASE("an item's inputs are the items that it names, anywhere in its parameters", "[service][refs]") {
    const auto literal = [](const Json& value) { return Json::array({Json{{"$literal", value}}}); };
    for (const auto& [params, inputs] : std::vector<std::pair<Json, std::string>>{
             {{1, 2}, ""},
             {{item(1)}, "1 "},
             {{{"x", item("two")}, {"y", 5}}, "2 "},
             {{Json::array({item(3), Json{{"deep", Json::array({item(1)})}}}), item(3)}, "3 1 "},
             {{{"method", "f"}, {"params", Json::array({item(3)})}}, "3 "},
             {{Json{{"$ref", "l-1"}}, Json{{"$ref", "name"}}}, ""},
             {literal(item(1)), ""},  // from here on: what only looks like a name
             {literal({{"inside", item(1)}}), "1 "},
             {{Json{{"$tensor", Json{{"data", item(1)}}}}}, ""},
             {{Json{{"$object", item(1)}}}, ""},
             {{Json{{"$ref", Json{{"item", 1}}}, {"other", 1}}}, ""},
             {{Json{{"$ref", Json{{"item", 1}, {"path", "x"}}}}}, ""},
             {{item(4)}, "4, the item itself"}})
        CHECK(inputs_of_last({request(1, {}), request("two", {}), request(3, {}), request(4, params)}) == inputs);
}
