#include "protocol/codec/value.hpp"

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

TEST_CASE("arrays and objects nest, and a member written twice has the later value", "[codec][sink]") {
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
        root.member("empty").integer(1);
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
