// A plain object that has a key starting with '$' travels inside {"$literal": {...}}: both ways, at any depth.

#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <shared_tensor/json.hpp>
#include <string>

#include "support/codec_round.hpp"

using namespace shared_tensor;
using namespace shared_tensor::test;

TEST_CASE("objects with a key that starts with $ are wrapped, others are not", "[codec][literal]") {
    const struct {
        const char* value;
        const char* stream;
    } table[] = {
        {R"({"a": 1})", R"({"a": 1})"},
        {R"({"a$": 1})", R"({"a$": 1})"},
        {R"({"": 1, "#": 2, "%": 3})", R"({"": 1, "#": 2, "%": 3})"},
        {R"({"$a": 1})", R"({"$literal": {"$a": 1}})"},
        {R"({"$": 1})", R"({"$literal": {"$": 1}})"},
        {R"({"!": 0, "$a": 1, "b": 2, "c": {}})", R"({"$literal": {"!": 0, "$a": 1, "b": 2, "c": {}}})"},
        {R"({"$tensor": {"name": "x"}})", R"({"$literal": {"$tensor": {"name": "x"}}})"},
        {R"({"$tensor": 0})", R"({"$literal": {"$tensor": 0}})"},
        {R"({"$literal": {"a": 1}})", R"({"$literal": {"$literal": {"a": 1}}})"},
        {R"({"$literal": {"$a": 1}})", R"({"$literal": {"$literal": {"$literal": {"$a": 1}}}})"},
        {R"({"$literal": 1, "$tensor": 2})", R"({"$literal": {"$literal": 1, "$tensor": 2}})"},
        {R"({"$a": {"$b": {"c": {"$d": null}}}})",
         R"({"$literal": {"$a": {"$literal": {"$b": {"c": {"$literal": {"$d": null}}}}}}})"},
        {R"([{"$a": 1}, {"b": 1}, {"$c": 1}])", R"([{"$literal": {"$a": 1}}, {"b": 1}, {"$literal": {"$c": 1}}])"},
        {R"([{"a": [{"$b": 1}]}])", R"([{"a": [{"$literal": {"$b": 1}}]}])"},
    };
    for (const auto& row : table) {
        INFO(row.value);
        const Json value = Json::parse(row.value), stream = Json::parse(row.stream);
        CHECK(write<Json>(value) == stream);
        CHECK(read<Json>(stream) == value);
    }
}

TEST_CASE("elements that follow a wrapped one in a growing array are written to their own place", "[codec][literal]") {
    const Json json = written_by([](ValueWriter root) {
        root.array();
        for (int i = 0; i < 100; ++i) {
            ValueWriter element = root.append();
            element.object();
            element.member(i % 3 == 0 ? "$a" : "a").integer(i);
            element.member("b").integer(i);
        }
    });
    for (int i = 0; i < 100; ++i) {
        const Json plain = {{i % 3 == 0 ? "$a" : "a", i}, {"b", i}};
        CHECK(json[static_cast<std::size_t>(i)] == (i % 3 == 0 ? Json{{"$literal", plain}} : plain));
    }
}

TEST_CASE("a member whose value was begun before the object was wrapped keeps its place, and a tensor is one still",
          "[codec][literal]") {
    const Json json = written_by([](ValueWriter root) {
        root.object();
        ValueWriter list = root.member("list");
        list.array();
        root.member("$weights").tensor(tensor_named("w"));
        list.append().integer(2);
    });
    CHECK(json == Json::parse(R"({"$literal": {"list": [2], "$weights": {"$tensor": {"name": "w"}}}})"));
}

TEST_CASE("an object with a $ key that means nothing is rejected, with the way out", "[codec][literal]") {
    for (const char* text : {R"({"$what": 1})", R"({"$literal": 1})", R"({"$literal": {}, "a": 1})",
                             R"({"$tensor": {}, "a": 1})", R"({"a": 1, "$b": 2})"}) {
        INFO(text);
        CHECK(rejection<Json>(Json::parse(text)) ==
              "value: expected JSON value without tensors, got object with a key that starts with $ (wrap a plain one: "
              "{\"$literal\": {...}})");
    }
}

TEST_CASE("a hundred thousand wrapped objects take no time to speak of", "[codec][literal]") {
    Json list = Json::array();
    for (int i = 0; i < 100'000; ++i)
        list.push_back({{"$a", i}});
    const auto before = std::chrono::steady_clock::now();
    const Json stream = write<Json>(list);
    CHECK(read<Json>(stream) == list);
    CHECK(std::chrono::steady_clock::now() - before < std::chrono::seconds(10));  // quadratic work took minutes
}
