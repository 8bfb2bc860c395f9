// What a message names, as its arguments are read.

#include "protocol/codec/value.hpp"

#include <catch2/catch_test_macros.hpp>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <shared_tensor/codecs.hpp>
#include <shared_tensor/tensor_ref.hpp>

#include "protocol/codec/json_source.hpp"
#include "support/fake_tensor.hpp"

using namespace shared_tensor;
using namespace shared_tensor::test;
using codec::Json;

namespace {

ObjectPointer object_called(const std::string& type) {
    return std::make_shared<const ObjectCell>(ObjectCell{type, {}, std::make_shared<int>(7), "i"});
}

class FakeReferences final : public codec::References {
public:
    std::shared_ptr<const codec::Value> value(const Json& name) override {
        ++asked;
        const auto found = values.find(name);
        if (found == values.end()) throw codec::Unresolved(json_rpc::unknown_or_expired("tensor", "e"));
        return found->second;
    }
    ObjectPointer object(const Json& handle) override {
        if (handle != Json{{"id", "o-1"}}) throw codec::Unresolved(json_rpc::unknown_or_expired("object", "e"));
        return known;
    }
    void add(const Json& name, codec::Value value) {
        values[name] = std::make_shared<const codec::Value>(std::move(value));
    }

    std::map<Json, std::shared_ptr<const codec::Value>> values;
    ObjectPointer known = object_called("thing");
    int asked = 0;
};

struct Reading {
    explicit Reading(Json document) : json(std::move(document)) {}
    template <class T>
    T read() const {
        return Codec<T>::read(ValueReader(source, codec::JsonSource::node(json)));
    }
    template <class T>
    std::string rejection() const {
        try {
            read<T>();
        } catch (const InvalidValue& error) {
            return error.what();
        }
        return "taken";
    }
    Json json;
    FakePort port;
    FakeReferences references;
    codec::JsonSource source{port, &references};
};

codec::Value tensor_value(const std::string& name) {
    return {Json::array({Json{{"$tensor", 0}}, 5}), {std::make_shared<FakeTensor>(name)}};
}

}  // namespace

TEST_CASE("a reference is read as the value that it names, nested and with odd keys too", "[codec][refs]") {
    Reading reading(Json::array({1, Json{{"$ref", "two"}}, 3}));
    reading.references.add("two", {2});
    CHECK(reading.read<std::vector<int>>() == std::vector<int>{1, 2, 3});
    CHECK(reading.references.asked == 1);

    Reading nested(Json{{"a", Json{{"$ref", "map"}}}});
    nested.references.add("map", {Json{{"$literal", Json{{"$ref", 1}, {"x", 2}}}}});
    using Map = std::map<std::string, int>;
    CHECK(nested.read<std::map<std::string, Map>>().at("a") == Map{{"$ref", 1}, {"x", 2}});
}

TEST_CASE("the tensors of a value that is named are the very same", "[codec][refs]") {
    Reading reading(Json{{"$ref", "pair"}});
    const auto value = tensor_value("held");
    const TensorRef* held = &value.tensors[0]->tensor();
    reading.references.add("pair", value);
    const ValueReader root(reading.source, codec::JsonSource::node(reading.json));
    CHECK(&root.element(0).tensor() == held);
    CHECK(root.element(1).integer() == 5);
    CHECK(reading.port.imports == 0);
}

TEST_CASE("what comes from outside cannot pass for a tensor or object of a value in the server", "[codec][refs]") {
    Reading reading(Json::array({Json{{"$ref", "pair"}}, Json{{"$tensor", 0}}, Json{{"$object", 0}}}));
    reading.references.add("pair", tensor_value("held"));
    const ValueReader root(reading.source, codec::JsonSource::node(reading.json));
    (void)root.element(0).element(0).tensor();
    CHECK_THROWS_AS(root.element(1).tensor(), InvalidValue);
    CHECK_THROWS_AS(root.element(2).handle(), InvalidValue);
}

TEST_CASE("objects are found by handle or inside a value, and their uses are noted", "[codec][refs]") {
    Reading reading(Json::array({Json{{"$object", Json{{"id", "o-1"}}}}, Json{{"$ref", "result"}}}));
    const ObjectPointer inner = object_called("inner");
    reading.references.add("result", {Json{{"$object", 0}}, {}, {inner}});
    const ValueReader root(reading.source, codec::JsonSource::node(reading.json));
    CHECK(root.element(0).kind() == Kind::handle);
    CHECK(root.element(1).kind() == Kind::handle);
    CHECK(root.element(0).handle(Access::exclusive) == reading.references.known);
    CHECK(root.element(1).handle() == inner);
    REQUIRE(reading.source.uses().size() == 2);
    CHECK(reading.source.uses()[0].second == Access::exclusive);
    CHECK(reading.source.uses()[1].first == inner);
}

TEST_CASE("what cannot be had is told with its own error, and with its place", "[codec][refs]") {
    const Reading reading(Json::array({1, Json{{"$ref", "gone"}}}));
    CHECK(reading.rejection<std::vector<int>>() != "taken");
    REQUIRE(reading.source.rejection());
    CHECK(reading.source.rejection()->code == -32005);
    const Reading handle(Json{{"$object", Json{{"id", "o-2"}}}});
    const ValueReader root(handle.source, codec::JsonSource::node(handle.json));
    CHECK_THROWS_AS(root.handle(), InvalidValue);
    CHECK(handle.source.rejection()->data["kind"] == "object");
}

TEST_CASE("without references nothing is named", "[codec][refs]") {
    FakePort port;
    const codec::JsonSource source(port);
    const Json name{{"$ref", "two"}}, handle{{"$object", Json{{"id", "o-1"}}}};
    CHECK(source.kind(codec::JsonSource::node(name)) == Kind::unknown);
    CHECK_THROWS_AS(source.handle(codec::JsonSource::node(handle), Access::concurrent), InvalidValue);
}

TEST_CASE("a value with objects is written with the reader's own handles", "[codec][refs]") {
    FakePort port;
    codec::Value value;
    codec::JsonSink sink(value, port);
    ValueWriter writer(sink, sink.root());
    writer.array(2);
    writer.append().handle(object_called("one"));
    writer.append().handle(object_called("two"));
    CHECK_FALSE(value.is_plain());
    int count = 0;
    const auto handle = [&](const ObjectPointer& object) { return Json{{"id", ++count}, {"type", object->type}}; };
    CHECK(codec::encode(value, port, handle) ==
          Json::parse(R"([{"$object":{"id":1,"type":"one"}},{"$object":{"id":2,"type":"two"}}])"));
    CHECK_THROWS_AS(codec::encode(value, port), std::logic_error);
}

TEST_CASE("references are written into requests only", "[codec][refs]") {
    FakePort port;
    codec::Value value;
    codec::JsonSink request(value, port, codec::JsonSink::References::write);
    ValueWriter(request, request.root()).reference_to_item(5);
    CHECK(value.json == Json::parse(R"({"$ref": {"item": 5}})"));
    ValueWriter(request, request.root()).reference_to_name("set/member");
    CHECK(value.json == Json::parse(R"({"$ref": "set/member"})"));
    codec::JsonSink result(value, port);
    CHECK_THROWS_AS(ValueWriter(result, result.root()).reference_to_item(5), std::logic_error);
}
