#include "runtime/functions/arguments.hpp"

#include <catch2/catch_test_macros.hpp>
#include <string>
#include <vector>

using namespace shared_tensor;
using json_rpc::Json;

namespace {

Json request(const Json& id, const Json& params) { return {{"id", id}, {"params", params}}; }

/// The places that the last of these items names, or why it may not.
std::string inputs_of_last(const std::vector<Json>& items) {
    std::vector<json_rpc::Request> requests;
    for (const Json& item : items) {
        json_rpc::Request made{"f", item.value("params", Json()), std::nullopt, nullptr};
        if (item.contains("id")) made.id = item["id"];
        requests.push_back(std::move(made));
    }
    std::vector<const json_rpc::Request*> pointers;
    for (const auto& one : requests)
        pointers.push_back(&one);
    const auto all = runtime::find_inputs(pointers);
    if (all.back().error) return all.back().error->data["got"].get<std::string>();
    std::string text;
    for (const std::size_t place : all.back().items)
        text += std::to_string(place) + " ";
    return text;
}

Json item(const Json& id) { return {{"$ref", {{"item", id}}}}; }

}  // namespace

TEST_CASE("an item's inputs are the items that it names, anywhere in its parameters", "[service][refs]") {
    const std::vector<Json> first{request(1, {}), request("two", {}), request(3, {})};
    const auto with = [&](const Json& params) {
        auto items = first;
        items.push_back(request(4, params));
        return inputs_of_last(items);
    };
    CHECK(with({1, 2}) == "");
    CHECK(with({item(1)}) == "0 ");
    CHECK(with({{"x", item("two")}, {"y", 5}}) == "1 ");
    CHECK(with({Json::array({item(3), Json{{"deep", Json::array({item(1)})}}}), item(3)}) == "2 0 ");
    CHECK(with({{"method", "f"}, {"params", Json::array({item(3)})}}) == "2 ");
    CHECK(with({Json{{"$ref", "l-1"}}, Json{{"$ref", "name"}}}) == "");
}

TEST_CASE("what only looks like a name is none", "[service][refs]") {
    const auto with = [](const Json& params) { return inputs_of_last({request(1, {}), request(2, params)}); };
    CHECK(with({Json{{"$literal", item(1)}}}) == "");
    CHECK(with({Json{{"$literal", Json{{"inside", item(1)}}}}}) == "0 ");
    CHECK(with({Json{{"$tensor", Json{{"data", item(1)}}}}}) == "");
    CHECK(with({Json{{"$object", item(1)}}}) == "");
    CHECK(with({Json{{"$ref", Json{{"item", 1}}}, {"other", 1}}}) == "");
    CHECK(with({Json{{"$ref", Json{{"item", 1}, {"path", "x"}}}}}) == "");
}

TEST_CASE("only one earlier item with an id can be named", "[service][refs]") {
    CHECK(inputs_of_last({request(1, {}), request(2, {item(7)})}) == "7, which no item has (notifications have none)");
    CHECK(inputs_of_last({request(1, {}), request(1, {}), request(2, {item(1)})}) == "1, which several items have");
    CHECK(inputs_of_last({request(nullptr, {}), request(2, {item(nullptr)})}) == "null, which names nothing");
    CHECK(inputs_of_last({request(1, {}), request("2", {item("2")})}) == "\"2\", the item itself");
    CHECK(inputs_of_last({Json{{"params", Json::array()}}, request(2, {item("1")})}) ==
          "\"1\", which no item has (notifications have none)");
    const json_rpc::Request early{"f", Json::array({item("late")}), Json(1), nullptr};
    const json_rpc::Request late{"f", Json::array(), Json("late"), nullptr};
    const std::vector<const json_rpc::Request*> both{&early, nullptr, &late};
    const auto inputs = runtime::find_inputs(both);
    CHECK(inputs[0].error->data["got"] == "\"late\", a later item");
    CHECK(inputs[0].error->code == -32602);
    CHECK_FALSE(inputs[2].error);
}
