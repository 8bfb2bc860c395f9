#include "protocol/codec/json_sink.hpp"

#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <random>
#include <string>

#include "support/codec_round.hpp"

using namespace shared_tensor;
using namespace shared_tensor::test;

TEST_CASE("a value that nothing was written to is null", "[codec][sink]") {
    CHECK(written_by([](ValueWriter) {}) == nullptr);
}

TEST_CASE("scalars are written as they are", "[codec][sink]") {
    CHECK(written_by([](ValueWriter w) { w.boolean(true); }) == true);
    CHECK(written_by([](ValueWriter w) { w.string("\xc3\xa4"); }) == "\xc3\xa4");
    CHECK(written_by([](ValueWriter w) { w.number(0.1); }) == 0.1);
    CHECK(written_by([](ValueWriter w) { w.null(); }).is_null());
}

TEST_CASE("integers are exact to the ends of their range", "[codec][sink]") {
    CHECK(written_by([](ValueWriter w) { w.integer(std::numeric_limits<std::int64_t>::min()); }).dump() ==
          "-9223372036854775808");
    CHECK(written_by([](ValueWriter w) { w.unsigned_integer(std::numeric_limits<std::uint64_t>::max()); }).dump() ==
          "18446744073709551615");
}

TEST_CASE("what is no number has the protocol's names, for both widths", "[codec][sink]") {
    const auto text = [](auto value) { return written_by([&](ValueWriter w) { w.number(value); }); };
    CHECK(text(std::nan("")) == "NaN");
    CHECK(text(-std::nan("")) == "NaN");
    CHECK(text(std::numeric_limits<double>::infinity()) == "Infinity");
    CHECK(text(-std::numeric_limits<double>::infinity()) == "-Infinity");
    CHECK(text(std::nanf("")) == "NaN");
    CHECK(text(std::numeric_limits<float>::infinity()) == "Infinity");
    CHECK(text(-std::numeric_limits<float>::infinity()) == "-Infinity");
}

TEST_CASE("a float prints in the shortest form that reads back the same", "[codec][sink]") {
    const auto text = [](float value) { return written_by([&](ValueWriter w) { w.number(value); }).dump(); };
    CHECK(text(0.1F) == "0.1");
    CHECK(text(16777216.0F) == "16777216.0");
    CHECK(text(3.4028235e38F) == "3.4028235e+38");
    CHECK(text(1e-45F) == "1e-45");
    CHECK(text(-0.0F) == "-0.0");
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
        for (int i = 0; i < 5; ++i) {  // more than said beforehand: elements move
            ValueWriter element = list.append();
            element.object();
            element.member("i").integer(i);
            ValueWriter inner = element.member("inner");
            inner.array();
            inner.append().boolean(i % 2 == 0);
        }
        root.member("empty").object();
    });
    CHECK(json == Json::parse(R"({"list": [{"i":0,"inner":[true]}, {"i":1,"inner":[false]}, {"i":2,"inner":[true]},
                                           {"i":3,"inner":[false]}, {"i":4,"inner":[true]}], "empty": {}})"));
}

TEST_CASE("a member written twice has the later value", "[codec][sink]") {
    CHECK(written_by([](ValueWriter w) {
              w.object();
              w.member("a").integer(1);
              w.member("a").integer(2);
          }) == Json{{"a", 2}});
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
