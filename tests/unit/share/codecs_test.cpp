#include <catch2/catch_template_test_macros.hpp>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstdint>
#include <limits>
#include <shared_tensor/codecs.hpp>
#include <string>

#include "support/codec_round.hpp"

using namespace shared_tensor;
using namespace shared_tensor::test;

TEST_CASE("bool is true and false, nothing else", "[share][codecs]") {
    CHECK(read<bool>(true));
    CHECK_FALSE(read<bool>(false));
    CHECK(rejection<bool>(1) == "value: expected boolean, got number 1");
    CHECK(rejection<bool>("true") == "value: expected boolean, got string \"true\"");
    CHECK(write(true) == true);
}

TEMPLATE_TEST_CASE("integers are taken to the ends of their range, both ways", "[share][codecs]", std::int8_t,
                   std::uint8_t, std::int16_t, std::uint16_t, std::int32_t, std::uint32_t, std::int64_t,
                   std::uint64_t) {
    using Limits = std::numeric_limits<TestType>;
    for (const TestType value : {Limits::min(), TestType{0}, TestType{1}, Limits::max()}) {
        CHECK(read<TestType>(value) == value);
        CHECK(read<TestType>(write(value)) == value);
        CHECK(write(value).dump() == std::to_string(value));
    }
}

TEST_CASE("an integer out of range is rejected, never narrowed", "[share][codecs]") {
    CHECK(rejection<std::uint8_t>(256) == "value: expected integer from 0 to 255, got number 256");
    CHECK(rejection<std::uint8_t>(-1) == "value: expected integer from 0 to 255, got number -1");
    CHECK(rejection<std::int8_t>(-129) == "value: expected integer from -128 to 127, got number -129");
    CHECK(rejection<std::int32_t>(2147483648) ==
          "value: expected integer from -2147483648 to 2147483647, got number 2147483648");
    CHECK(rejection<std::uint64_t>(-1) != "taken");
    CHECK(rejection<std::int64_t>(std::uint64_t{1} << 63) ==
          "value: expected integer from -9223372036854775808 to 9223372036854775807, got number 9223372036854775808");
}

TEST_CASE("a whole number with a point is an integer, one with a fraction is not", "[share][codecs]") {
    CHECK(read<int>(3.0) == 3);
    CHECK(read<int>(-0.0) == 0);
    CHECK(read<int>(Json::parse("1e3")) == 1000);
    CHECK(read<std::int64_t>(-9007199254740992.0) == -9007199254740992);
    CHECK(rejection<int>(3.5) == "value: expected integer from -2147483648 to 2147483647, got number 3.5");
    CHECK(rejection<std::uint8_t>(256.0) != "taken");
    CHECK(rejection<std::uint8_t>(-1.0) != "taken");
}

TEST_CASE("a number with a point beyond 2^53 is no integer: it may have been rounded", "[share][codecs]") {
    CHECK(rejection<std::int64_t>(Json::parse("9007199254740994.0")) != "taken");
    CHECK(rejection<std::int64_t>(-9223372036854775808.0) != "taken");
    CHECK(rejection<std::uint64_t>(1e300) != "taken");
}

TEST_CASE("no other kind is an integer", "[share][codecs]") {
    for (const Json& value : {Json("1"), Json(true), Json(nullptr), Json::array(), Json::object()}) {
        CHECK(rejection<int>(value).starts_with("value: expected integer from -2147483648 to 2147483647, got "));
    }
}

TEST_CASE("floating point takes every number, and the names of what is none", "[share][codecs]") {
    CHECK(read<double>(1.5) == 1.5);
    CHECK(read<double>(-3) == -3.0);
    CHECK(read<double>(std::numeric_limits<std::uint64_t>::max()) == 18446744073709551616.0);
    CHECK(read<float>(0.1) == 0.1F);
    CHECK(std::isnan(read<float>("NaN")));
    CHECK(read<double>("Infinity") == std::numeric_limits<double>::infinity());
    CHECK(read<double>("-Infinity") == -std::numeric_limits<double>::infinity());
    CHECK(rejection<double>("nan") == "value: expected number, got string \"nan\"");
    CHECK(rejection<double>(nullptr) == "value: expected number, got null");
}

TEST_CASE("a double beyond float's range is rejected for a float, not made infinite", "[share][codecs]") {
    CHECK(rejection<float>(1e39) == "value: expected number within the range of float, got number 1e+39");
    CHECK(rejection<float>(-1e39) != "taken");
    CHECK(read<float>(3.4028234663852886e38) == std::numeric_limits<float>::max());
    CHECK(read<float>(1e-50) == 0.0F);
}

TEST_CASE("long double travels as double", "[share][codecs]") {
    CHECK(read<long double>(0.25) == 0.25L);
    CHECK(write(0.5L) == 0.5);
}

TEST_CASE("a string is taken as it is, zeros and all", "[share][codecs]") {
    using namespace std::string_literals;
    CHECK(read<std::string>("a\0b"s) == "a\0b"s);
    CHECK(write("a\0b"s) == Json("a\0b"s));
    CHECK(rejection<std::string>(1) == "value: expected string, got number 1");
}

TEST_CASE("Bytes are base64", "[share][codecs]") {
    const Bytes bytes{{std::byte{0}, std::byte{255}}};
    CHECK(write(bytes) == "AP8=");
    CHECK(read<Bytes>("AP8=") == bytes);
    CHECK(rejection<Bytes>("AP8") == "value: expected base64 string (RFC 4648, padded), got string \"AP8\"");
    CHECK(rejection<Bytes>(1) == "value: expected base64 string, got number 1");
}

TEST_CASE("an optional is null or its value", "[share][codecs]") {
    using Maybe = std::optional<int>;
    CHECK(read<Maybe>(nullptr) == std::nullopt);
    CHECK(read<Maybe>(5) == 5);
    CHECK(rejection<Maybe>("x") != "taken");
    CHECK(write(Maybe()).is_null());
    CHECK(write(Maybe(5)) == 5);
}

TEST_CASE("a vector is an array; a bad element is named", "[share][codecs]") {
    using Numbers = std::vector<int>;
    CHECK(read<Numbers>({1, 2, 3}) == Numbers{1, 2, 3});
    CHECK(read<Numbers>(Json::array()).empty());
    CHECK(write(Numbers{1, 2}) == Json{1, 2});
    CHECK(write(Numbers()) == Json::array());
    CHECK(rejection<Numbers>({1, "x"}) == "[1]: expected integer from -2147483648 to 2147483647, got string \"x\"");
    CHECK(rejection<std::vector<Numbers>>(Json::parse("[[1], [2, null]]")).starts_with("[1][1]: "));
    CHECK(rejection<Numbers>(Json::object()) == "value: expected array, got object");
}

TEST_CASE("a vector of bool works like any other", "[share][codecs]") {
    const std::vector<bool> bits{true, false, true};
    CHECK(read<std::vector<bool>>(write(bits)) == bits);
}

TEST_CASE("an array has its length", "[share][codecs]") {
    using Three = std::array<double, 3>;
    CHECK(read<Three>({1, 2, 3}) == Three{1, 2, 3});
    CHECK(write(Three{1, 2, 3}) == Json{1.0, 2.0, 3.0});
    CHECK(rejection<Three>({1, 2}) == "value: expected array of 3, got array of 2");
    CHECK(rejection<Three>({1, 2, 3, 4}) == "value: expected array of 3, got array of 4");
    CHECK(rejection<Three>({1, "x", 3}).starts_with("[1]: expected number"));
    CHECK(read<std::array<std::array<int, 2>, 2>>(Json::parse("[[1,2],[3,4]]"))[1][0] == 3);
    CHECK(read<std::array<int, 0>>(Json::array()).empty());
}

TEST_CASE("a tuple and a pair are arrays of their length", "[share][codecs]") {
    using Row = std::tuple<int, std::string, bool>;
    CHECK(read<Row>(Json::parse(R"([1, "a", true])")) == Row{1, "a", true});
    CHECK(write(Row{1, "a", true}) == Json::parse(R"([1, "a", true])"));
    CHECK(rejection<Row>(Json::parse(R"([1, "a"])")) == "value: expected array of 3, got array of 2");
    CHECK(rejection<Row>(Json::parse(R"([1, 2, true])")) == "[1]: expected string, got number 2");
    CHECK(read<std::pair<int, int>>({1, 2}) == std::pair(1, 2));
    CHECK(rejection<std::pair<int, int>>({1, 2, 3}) == "value: expected array of 2, got array of 3");
    CHECK(read<std::tuple<>>(Json::array()) == std::tuple<>());
    CHECK(write(std::tuple<>()) == Json::array());
    CHECK(read<std::tuple<std::tuple<int>>>(Json::parse("[[4]]")) == std::tuple<std::tuple<int>>(std::tuple(4)));
}

TEST_CASE("a map is an object; a bad member is named", "[share][codecs]") {
    using Map = std::map<std::string, int>;
    using Hashed = std::unordered_map<std::string, int>;
    CHECK(read<Map>({{"a", 1}, {"b", 2}}) == Map{{"a", 1}, {"b", 2}});
    CHECK(read<Hashed>({{"a", 1}, {"b", 2}}) == Hashed{{"a", 1}, {"b", 2}});
    CHECK(write(Map{{"a", 1}}) == Json{{"a", 1}});
    CHECK(write(Map()) == Json::object());
    CHECK(rejection<Map>({{"a", 1}, {"b", "x"}}).starts_with("b: expected integer"));
    CHECK(rejection<Map>(Json::array()) == "value: expected object, got array of 0");
    CHECK(rejection<std::map<std::string, std::vector<int>>>({{"a", {1, nullptr}}}).starts_with("a[1]: "));
}

TEST_CASE("keys of a map may begin with $", "[share][codecs]") {
    using Map = std::map<std::string, int>;
    const Map prices{{"$", 1}, {"$tensor", 2}, {"x", 3}};
    CHECK(write(prices) == Json::parse(R"({"$literal": {"$": 1, "$tensor": 2, "x": 3}})"));
    CHECK(read<Map>(write(prices)) == prices);
}

TEST_CASE("containers nest", "[share][codecs]") {
    using Deep = std::map<std::string, std::vector<std::optional<std::tuple<int, std::array<std::string, 2>>>>>;
    const Json json = Json::parse(R"({"a": [null, [1, ["x", "y"]]], "b": []})");
    CHECK(write(read<Deep>(json)) == json);
    CHECK(rejection<Deep>(Json::parse(R"({"a": [[1, ["x", 2]]]})")) == "a[0][1][1]: expected string, got number 2");
}
