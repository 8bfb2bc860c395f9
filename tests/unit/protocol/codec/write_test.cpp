#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <shared_tensor/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "protocol/codec/value.hpp"
#include "support/codec_round.hpp"
#include "support/fake_tensor.hpp"

using namespace shared_tensor;
using namespace shared_tensor::test;
using namespace shared_tensor::codec;
using shared_tensor::test::FakePort;
using shared_tensor::test::FakeTensor;

TEST_CASE("scalars are written as they are, numbers exactly and in the shortest form that reads back the same",
          "[codec][sink]") {
    const auto text = [](auto write) { return written_by(write).dump(); };
    const auto number = [&](auto value) { return text([&](ValueWriter w) { w.number(value); }); };
    using Float = std::numeric_limits<float>;
    using Double = std::numeric_limits<double>;
    CHECK(text([](ValueWriter) {}) == "null");
    CHECK(text([](ValueWriter w) { w.null(); }) == "null");
    CHECK(text([](ValueWriter w) { w.boolean(true); }) == "true");
    CHECK(text([](ValueWriter w) { w.string("\xc3\xa4"); }) == "\"\xc3\xa4\"");
    CHECK(text([](ValueWriter w) { w.integer(std::numeric_limits<std::int64_t>::min()); }) == "-9223372036854775808");
    CHECK(text([](ValueWriter w) { w.unsigned_integer(std::numeric_limits<std::uint64_t>::max()); }) ==
          "18446744073709551615");
    for (const std::string& none :
         {number(Double::quiet_NaN()), number(-Double::quiet_NaN()), number(Float::quiet_NaN())})
        CHECK(none == "\"NaN\"");
    CHECK(number(Double::infinity()) == "\"Infinity\"");
    CHECK(number(-Double::infinity()) == "\"-Infinity\"");
    CHECK(number(Float::infinity()) == "\"Infinity\"");
    CHECK(number(-Float::infinity()) == "\"-Infinity\"");
    CHECK(number(0.1) == "0.1");
    CHECK(number(0.1F) == "0.1");
    CHECK(number(16777216.0F) == "16777216.0");
    CHECK(number(Float::max()) == "3.4028235e+38");
    CHECK(number(Float::denorm_min()) == "1e-45");
    CHECK(number(-0.0F) == "-0.0");
}

TEST_CASE("what JSON cannot hold unchanged is rejected", "[codec][sink]") {
    const auto is_rejected = [](auto write) {
        try {
            written_by(write);
        } catch (const std::invalid_argument&) {
            return true;
        }
        return false;
    };
    for (const char* text : {"caf\xe9", "\xed\xa0\x80", "12345678\xff", "\xc3"}) {
        CHECK(is_rejected([&](ValueWriter w) { w.string(text); }));
        CHECK(is_rejected([&](ValueWriter w) { w.object(), w.member(text); }));
    }
    CHECK(is_rejected([](ValueWriter w) { w.object(), w.member("x").null(), w.member("x").null(); }));
    CHECK(is_rejected([](ValueWriter w) { w.object(), w.member("$x").null(), w.member("$x").null(); }));
    const auto json = [](Json value) {
        return [value = std::move(value)](ValueWriter w) { Codec<Json>::write(w, value); };
    };
    CHECK(is_rejected(json(Json::binary({1, 2}))));
    CHECK(is_rejected(json(Json(Json::value_t::discarded))));
    CHECK_FALSE(is_rejected(json({{"a", nullptr}, {"b", "12345678\xc3\xa9"}})));
}

TEST_CASE("every float reads back the same", "[codec][sink]") {
    std::mt19937 random(1);
    for (int i = 0; i < 20'000; ++i) {
        const auto bits = static_cast<std::uint32_t>(random());
        float value = 0;
        std::memcpy(&value, &bits, sizeof value);
        if (!std::isfinite(value)) continue;
        const std::string text = written_by([&](ValueWriter w) { w.number(value); }).dump();
        REQUIRE(std::strtof(text.c_str(), nullptr) == value);
    }
}

TEST_CASE("arrays and objects nest", "[codec][sink]") {
    const auto json = written_by([](ValueWriter root) {
        root.object();
        ValueWriter list = root.member("list");
        list.array(2);
        for (int i = 0; i < 3; ++i) {  // more than said beforehand: elements move
            ValueWriter element = list.append();
            element.object();
            element.member("i").integer(i);
            ValueWriter inner = element.member("inner");
            inner.array();
            inner.append().boolean(i % 2 == 0);
        }
        root.member("empty").object();
    });
    CHECK(json == Json::parse(R"({"list": [{"i":0,"inner":[true]}, {"i":1,"inner":[false]}, {"i":2,"inner":[true]}],
                                  "empty": {}})"));
}

TEST_CASE("tensors are kept beside the JSON, which names them by number", "[codec][sink]") {
    FakePort port;
    codec::Value value;
    codec::JsonSink sink(value, port);
    ValueWriter root(sink, sink.root());
    root.array(2);
    root.append().tensor(tensor_named("x"));
    root.append().tensor(tensor_named("y"));
    CHECK(value.json == Json::parse(R"([{"$tensor": 0}, {"$tensor": 1}])"));
    REQUIRE(value.tensors.size() == 2);
    CHECK(name_in(value.tensors[1]->tensor()) == "y");
}

// A plain object that has a key starting with '$' travels inside {"$literal": {...}}: both ways, at any depth.

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

TEST_CASE("encoding puts descriptors where the tensors belong, for each reader, and nowhere else", "[codec][value]") {
    const std::vector<TensorPointer> tensors = {std::make_shared<FakeTensor>("x"), std::make_shared<FakeTensor>("y")};
    const std::pair<const char*, const char*> table[] = {
        {R"({"a": [{"$tensor": 1}, {"b": {"$tensor": 0}}], "c": 1})",
         R"({"a": [{"$tensor": {"name": "y"}}, {"b": {"$tensor": {"name": "x"}}}], "c": 1})"},
        {R"([{"$literal": {"$tensor": 0}}, {"$literal": {"$tensor": {"$tensor": 0}}}])",  // a user's own object
         R"([{"$literal": {"$tensor": 0}}, {"$literal": {"$tensor": {"$tensor": {"name": "x"}}}}])"},
        {R"({"a": 1})", R"({"a": 1})"},
    };
    FakePort port;
    for (const auto& [json, encoded] : table) {
        INFO(json);
        const Value value{Json::parse(json), tensors};
        for (int reader = 0; reader < 2; ++reader)
            CHECK(encode(value, port) == Json::parse(encoded));
        CHECK(value.json == Json::parse(json));
    }
}

TEST_CASE("the memory of a value counts tensors exactly, host and device apart", "[codec][value]") {
    const Json json = Json::parse(R"([{"$tensor": 0}, {"$tensor": 1}, {"$tensor": 2}])");
    const auto without = memory_of({json, {}});
    const auto with = memory_of({json,
                                 {std::make_shared<FakeTensor>("x", 1000), std::make_shared<FakeTensor>("y", 20, true),
                                  std::make_shared<FakeTensor>("z", 3)}});
    CHECK(with.host == without.host + 1003);
    CHECK(with.device == 20);
    CHECK(without.device == 0);
}

TEST_CASE("the memory of a value grows with its texts, elements and members", "[codec][value]") {
    const auto host = [](const Json& json) { return memory_of({json, {}}).host; };
    CHECK(host(std::string(100'000, 'x')) >= 100'000);
    CHECK(host(Json(std::vector<int>(1000, 1))) >= 1000 * sizeof(Json));
    CHECK(host(Json{{std::string(10'000, 'k'), 1}}) >= 10'000);
    CHECK(host(nullptr) > 0);
}
