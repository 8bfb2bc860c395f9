#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <limits>
#include <map>
#include <memory>
#include <shared_tensor/codecs.hpp>
#include <shared_tensor/tensor_ref.hpp>
#include <string>

#include "protocol/codec/json_source.hpp"
#include "protocol/codec/value.hpp"
#include "support/codec_round.hpp"
#include "support/fake_tensor.hpp"

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

// What a message names, as its arguments are read.

using namespace shared_tensor;
using namespace shared_tensor::test;
using codec::Json;

namespace {

class FakeReferences final : public codec::References {
public:
    std::shared_ptr<const codec::Value> value(const Json& name) override {
        const auto found = values.find(name);
        if (found == values.end()) throw codec::Unresolved(json_rpc::unknown_or_expired("tensor", "e"));
        return found->second;
    }
    ObjectPointer object(const Json&) override { throw codec::Unresolved(json_rpc::unknown_or_expired("object", "e")); }
    void add(const Json& name, codec::Value value) {
        values[name] = std::make_shared<const codec::Value>(std::move(value));
    }

    std::map<Json, std::shared_ptr<const codec::Value>> values;
};

struct Referring {
    explicit Referring(Json document) : json(std::move(document)) {}
    ValueReader reader() const { return {source, codec::JsonSource::node(json)}; }
    Json json;
    FakePort port;
    FakeReferences references;
    codec::JsonSource source{port, &references};
};

}  // namespace

TEST_CASE("a reference is read as the value that it names, with odd keys too", "[codec][refs]") {
    Referring nested(Json{{"a", Json{{"$ref", "map"}}}});
    nested.references.add("map", {Json{{"$literal", Json{{"$ref", 1}, {"x", 2}}}}});
    using Map = std::map<std::string, int>;
    CHECK(Codec<Map>::read(nested.reader().member("a")) == Map{{"$ref", 1}, {"x", 2}});
}

TEST_CASE("what comes from outside cannot pass for a tensor or object of a value in the server", "[codec][refs]") {
    Referring reading(Json::array({Json{{"$ref", "pair"}}, Json{{"$tensor", 0}}, Json{{"$object", 0}}}));
    reading.references.add("pair", {Json::array({Json{{"$tensor", 0}}}), {std::make_shared<FakeTensor>("held")}});
    const ValueReader root = reading.reader();
    (void)root.element(0).element(0).tensor();
    CHECK_THROWS_AS(root.element(1).tensor(), InvalidValue);
    CHECK_THROWS_AS(root.element(2).handle(), InvalidValue);
}
