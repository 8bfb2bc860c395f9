#include "protocol/codec/json_source.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <chrono>
#include <limits>
#include <string>
#include <vector>

#include "support/codec_round.hpp"

using namespace shared_tensor;
using namespace shared_tensor::test;

namespace {

struct Reading {
    explicit Reading(const char* text) : json(Json::parse(text)) {}
    Json json;
    FakePort port;
    codec::JsonSource source{port};
    ValueReader reader{source, codec::JsonSource::node(json)};
};

}  // namespace

TEST_CASE("each JSON value has its kind", "[codec][source]") {
    const struct {
        const char* text;
        Kind kind;
    } table[] = {
        {"null", Kind::null},
        {"false", Kind::boolean},
        {"-1", Kind::integer},
        {"1", Kind::unsigned_integer},
        {"1.0", Kind::number},
        {"\"\"", Kind::string},
        {"[]", Kind::array},
        {"{}", Kind::object},
        {R"({"tensor": {}})", Kind::object},
        {R"({"$tensor": {}})", Kind::tensor},
        {R"({"$tensor": 1})", Kind::tensor},
        {R"({"$literal": {"$tensor": {}}})", Kind::object},
        {R"({"$literal": []})", Kind::unknown},
        {R"({"$ref": "name"})", Kind::unknown},
        {R"({"$tensor": {}, "more": 1})", Kind::unknown},
    };
    for (const auto& row : table) {
        INFO(row.text);
        CHECK(Reading(row.text).reader.kind() == row.kind);
    }
    Reading binary("0");  // which no text makes
    binary.json = Json::binary({1, 2});
    CHECK(binary.reader.kind() == Kind::unknown);
}

TEST_CASE("integers are read exactly", "[codec][source]") {
    CHECK(Reading("-9223372036854775808").reader.integer() == std::numeric_limits<std::int64_t>::min());
    CHECK(Reading("18446744073709551615").reader.unsigned_integer() == std::numeric_limits<std::uint64_t>::max());
    CHECK(Reading("9007199254740993").reader.unsigned_integer() == 9007199254740993);
    CHECK(Reading("3").reader.number() == 3.0);
}

TEST_CASE("members and elements are found, inside $literal too", "[codec][source]") {
    Reading plain(R"({"a": [1, 2], "b": null})");
    CHECK(plain.reader.size() == 2);
    CHECK(plain.reader.has("b"));
    CHECK_FALSE(plain.reader.has("c"));
    const ValueReader list = plain.reader.member("a");
    CHECK(list.element(1).unsigned_integer() == 2);

    Reading wrapped(R"({"$literal": {"$a": 5, "b": 6}})");
    CHECK(wrapped.reader.size() == 2);
    CHECK(wrapped.reader.member("$a").unsigned_integer() == 5);
    CHECK_FALSE(wrapped.reader.has("$literal"));
    std::vector<std::string> keys;
    wrapped.reader.each_member([&](std::string_view key, const ValueReader&) { keys.emplace_back(key); });
    CHECK(keys == std::vector<std::string>{"$a", "b"});
}

TEST_CASE("a tensor is imported when it is first read, and once", "[codec][source]") {
    Reading reading(R"({"$tensor": {"name": "x"}})");
    CHECK(reading.source.imported(reading.reader.node()) == nullptr);
    CHECK(reading.port.imports == 0);
    const TensorRef& first = reading.reader.tensor();
    const TensorRef& second = reading.reader.tensor();
    CHECK(name_in(first) == "x");
    CHECK(&first == &second);
    CHECK(reading.port.imports == 1);
    CHECK(reading.source.imported(reading.reader.node()) != nullptr);
}

TEST_CASE("a tensor that cannot be had is named with its place", "[codec][source]") {
    Reading reading(R"({"layers": [{"$tensor": {"name": "x"}}, {"$tensor": {"name": 3}}]})");
    const ValueReader layers = reading.reader.member("layers");
    CHECK(name_in(layers.element(0).tensor()) == "x");
    CHECK_THROWS_WITH(layers.element(1).tensor(), "layers[1].name: expected string, got nothing");
}

TEST_CASE("a hundred thousand tensors take no time to speak of", "[codec][source]") {
    Json list = Json::array();
    for (int i = 0; i < 100'000; ++i)
        list.push_back({{"$tensor", {{"name", "x"}}}});
    FakePort port;
    const codec::JsonSource source(port);
    const ValueReader reader(source, codec::JsonSource::node(list));
    const auto before = std::chrono::steady_clock::now();
    for (std::size_t i = 0; i < reader.size(); ++i)
        reader.element(i).tensor();
    CHECK(std::chrono::steady_clock::now() - before < std::chrono::seconds(10));  // quadratic work took minutes
    CHECK(port.imports == 100'000);
}

TEST_CASE("values are described in few words, long strings by their beginning and no half of a character",
          "[codec][source]") {
    std::string umlauts = "a";
    for (int i = 0; i < 40; ++i)
        umlauts += "\xc3\xa4";
    const std::pair<Json, std::string> table[] = {
        {nullptr, "null"},
        {true, "true"},
        {-5, "number -5"},
        {2.5, "number 2.5"},
        {"ab\"c", "string \"ab\\\"c\""},
        {std::string(40, 'a'), "string \"" + std::string(40, 'a') + '"'},
        {std::string(1'000'000, 'a'), "string \"" + std::string(40, 'a') + "\"..."},
        {umlauts, "string \"" + umlauts.substr(0, 39) + "\"..."},
        {Json::array({1, 2, 3}), "array of 3"},
        {Json::object(), "object"},
        {Json{{"$tensor", Json::object()}}, "tensor"},
        {Json{{"$x", 1}}, "object with a key that starts with $ (wrap a plain one: {\"$literal\": {...}})"},
    };
    for (const auto& [json, words] : table) {
        FakePort port;
        CHECK(codec::JsonSource(port).describe(codec::JsonSource::node(json)) == words);
    }
}

TEST_CASE("places are written like a program would", "[codec][source]") {
    Reading reading(R"({"a": [[1], {"b c": {"d": 1}}]})");
    const ValueReader root(reading.source, reading.reader.node(), "boxes");
    const ValueReader a = root.member("a");
    const ValueReader first = a.element(0);
    const ValueReader second = a.element(1);
    const ValueReader inner = second.member("b c");
    CHECK(root.path() == "boxes");
    CHECK(first.element(0).path() == "boxes.a[0][0]");
    CHECK(inner.member("d").path() == "boxes.a[1].b c.d");
    CHECK(reading.reader.path().empty());
    CHECK(reading.reader.member("a").path() == "a");
}
