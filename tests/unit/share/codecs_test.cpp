// The types that a shared function takes and returns without a word: each value, its JSON and its schema.

#include <catch2/catch_template_test_macros.hpp>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <shared_tensor/bytes.hpp>
#include <shared_tensor/codecs.hpp>
#include <shared_tensor/json.hpp>
#include <shared_tensor/tensor_ref.hpp>
#include <string>

#include "support/codec_round.hpp"

using namespace shared_tensor;
using namespace shared_tensor::test;
using namespace std::string_literals;

namespace {

using Numbers = std::vector<int>;
using Map = std::map<std::string, int>;
using Hashed = std::unordered_map<std::string, int>;
using Row = std::tuple<int, std::string, bool>;
using Deep = std::map<std::string, std::vector<std::optional<std::tuple<int, std::array<std::string, 2>>>>>;

/// The value becomes this JSON, and this JSON the value.
template <class T>
bool is_both_ways(const T& value, const char* json) {
    return write(value) == Json::parse(json) && read<T>(Json::parse(json)) == value;
}

template <class T>
std::string rejects(const char* json) {
    return rejection<T>(Json::parse(json));
}

template <class T>
bool has_schema(const char* json) {
    return schema<T>() == Json::parse(json);
}

const std::string kNoInt = "expected integer from -2147483648 to 2147483647, got ";

}  // namespace

TEMPLATE_TEST_CASE("integers are taken to the ends of their range, both ways", "[share][codecs]", std::int8_t,
                   std::uint8_t, std::int16_t, std::uint16_t, std::int32_t, std::uint32_t, std::int64_t,
                   std::uint64_t) {
    using Limits = std::numeric_limits<TestType>;
    for (const TestType value : {Limits::min(), TestType{0}, TestType{1}, Limits::max()})
        CHECK(is_both_ways(value, std::to_string(value).c_str()));
}

TEST_CASE("values of each type and their JSON become each other", "[share][codecs]") {
    CHECK(is_both_ways(true, "true"));
    CHECK(is_both_ways(false, "false"));
    CHECK(is_both_ways(1.5, "1.5"));
    CHECK(is_both_ways(0.25L, "0.25"));
    CHECK(is_both_ways(std::numeric_limits<float>::max(), "3.4028235e38"));
    CHECK(is_both_ways(std::numeric_limits<float>::lowest(), "-3.4028235e38"));
    CHECK_THROWS_AS(write(std::numeric_limits<long double>::max()), std::invalid_argument);
    CHECK(is_both_ways(std::numeric_limits<double>::infinity(), "\"Infinity\""));
    CHECK(is_both_ways(-std::numeric_limits<double>::infinity(), "\"-Infinity\""));
    CHECK(is_both_ways("a\0b"s, R"("a\u0000b")"));
    CHECK(is_both_ways(Bytes{{std::byte{0}, std::byte{255}}}, "\"AP8=\""));
    CHECK(is_both_ways(std::optional<int>(), "null"));
    CHECK(is_both_ways(std::optional<int>(5), "5"));
    CHECK(is_both_ways(Numbers{1, 2, 3}, "[1,2,3]"));
    CHECK(is_both_ways(Numbers(), "[]"));
    CHECK(is_both_ways(std::vector<bool>{true, false, true}, "[true,false,true]"));
    CHECK(is_both_ways(std::array<double, 3>{1, 2, 3}, "[1,2,3]"));
    CHECK(is_both_ways(std::array<std::array<int, 2>, 2>{{{1, 2}, {3, 4}}}, "[[1,2],[3,4]]"));
    CHECK(is_both_ways(std::array<int, 0>{}, "[]"));
    CHECK(is_both_ways(Row{1, "a", true}, R"([1,"a",true])"));
    CHECK(is_both_ways(std::pair(1, 2), "[1,2]"));
    CHECK(is_both_ways(std::tuple<>(), "[]"));
    CHECK(is_both_ways(std::tuple<std::tuple<int>>(std::tuple(4)), "[[4]]"));
    CHECK(is_both_ways(Map{{"a", 1}, {"b", 2}}, R"({"a":1,"b":2})"));
    CHECK(is_both_ways(Hashed{{"a", 1}, {"b", 2}}, R"({"a":1,"b":2})"));
    CHECK(is_both_ways(Map(), "{}"));
    CHECK(is_both_ways(Map{{"$", 1}, {"$tensor", 2}, {"x", 3}}, R"({"$literal":{"$":1,"$tensor":2,"x":3}})"));
    CHECK(is_both_ways(Deep{{"a", {std::nullopt, std::tuple(1, std::array{"x"s, "y"s})}}, {"b", {}}},
                       R"({"a":[null,[1,["x","y"]]],"b":[]})"));
}

TEST_CASE("a number is read by what it is, not by how it is written", "[share][codecs]") {
    CHECK(read<int>(Json::parse("3.0")) == 3);
    CHECK(read<int>(Json::parse("-0.0")) == 0);
    CHECK(read<int>(Json::parse("1e3")) == 1000);
    CHECK(read<std::int64_t>(-9007199254740992.0) == -9007199254740992);
    CHECK(read<double>(-3) == -3.0);
    CHECK(read<double>(std::numeric_limits<std::uint64_t>::max()) == 18446744073709551616.0);
    CHECK(read<float>(0.1) == 0.1F);
    CHECK(read<float>(1e-50) == 0.0F);
    CHECK(read<float>(3.4028234663852886e38) == std::numeric_limits<float>::max());
    CHECK(std::isnan(read<float>("NaN")));
}

TEST_CASE("what does not fit is rejected, never narrowed, with its place", "[share][codecs]") {
    CHECK(rejects<bool>("1") == "value: expected boolean, got number 1");
    CHECK(rejects<bool>("\"true\"") == "value: expected boolean, got string \"true\"");
    for (const char* value : {"256", "-1", "256.0", "-1.0"})
        CHECK(rejects<std::uint8_t>(value).starts_with("value: expected integer from 0 to 255, got number "));
    CHECK(rejects<std::int8_t>("-129") == "value: expected integer from -128 to 127, got number -129");
    for (const char* value : {"2147483648", "3.5", "\"1\"", "true", "null", "[]", "{}"})
        CHECK(rejects<int>(value).starts_with("value: " + kNoInt));
    CHECK(rejects<std::uint64_t>("-1") != "taken");
    CHECK(rejects<std::uint64_t>("1e300") != "taken");
    CHECK(rejects<std::int64_t>("9223372036854775808") ==
          "value: expected integer from -9223372036854775808 to 9223372036854775807, got number 9223372036854775808");
    for (const char* value : {"9007199254740994.0", "-9223372036854775808.0"})  // beyond 2^53 it may have been rounded
        CHECK(rejects<std::int64_t>(value) != "taken");
    CHECK(rejects<double>("\"nan\"") == "value: expected number, got string \"nan\"");
    CHECK(rejects<double>("null") == "value: expected number, got null");
    CHECK(rejects<float>("1e39") == "value: expected number within the range of float, got number 1e+39");
    CHECK(rejects<float>("-1e39") != "taken");
    CHECK(rejects<float>("3.4028236e38") != "taken");  // nearer to 2^128 than to any float
    CHECK(rejects<std::string>("1") == "value: expected string, got number 1");
    CHECK(rejects<Bytes>("\"AP8\"") == "value: expected base64 string (RFC 4648, padded), got string \"AP8\"");
    CHECK(rejects<Bytes>("1") == "value: expected base64 string, got number 1");
    CHECK(rejects<std::optional<int>>("\"x\"") == "value: " + kNoInt + "string \"x\"");
    CHECK(rejects<Numbers>(R"([1,"x"])") == "[1]: " + kNoInt + "string \"x\"");
    CHECK(rejects<std::vector<Numbers>>("[[1],[2,null]]") == "[1][1]: " + kNoInt + "null");
    CHECK(rejects<Numbers>("{}") == "value: expected array, got object");
    for (const char* value : {"2", "4"})
        CHECK(rejects<std::array<double, 3>>(value[0] == '2' ? "[1,2]" : "[1,2,3,4]") ==
              "value: expected array of 3, got array of "s + value);
    CHECK(rejects<std::array<double, 3>>(R"([1,"x",3])").starts_with("[1]: expected number"));
    CHECK(rejects<Row>(R"([1,"a"])") == "value: expected array of 3, got array of 2");
    CHECK(rejects<Row>("[1,2,true]") == "[1]: expected string, got number 2");
    CHECK(rejects<std::pair<int, int>>("[1,2,3]") == "value: expected array of 2, got array of 3");
    CHECK(rejects<Map>(R"({"a":1,"b":"x"})") == "b: " + kNoInt + "string \"x\"");
    CHECK(rejects<Map>("[]") == "value: expected object, got array of 0");
    CHECK(rejects<Deep>(R"({"a":[[1,["x",2]]]})") == "a[0][1][1]: expected string, got number 2");
    CHECK(rejects<Json>(R"({"a":[{"$tensor":{"name":"x"}}]})") ==
          "a[0]: expected JSON value without tensors, got tensor");
}

TEST_CASE("any JSON value comes back as it was; what is no JSON number has the protocol's name", "[share][json]") {
    for (const char* text : {"null", "true", "-5", "18446744073709551615", "2.5", "\"x\"", "[]", "{}",
                             R"([1,[2,{"a":null}]])", R"({"a":{"b":[1,2.5,"c",false,null]}})"}) {
        CHECK(is_both_ways(Json::parse(text), text));
        CHECK(write(Json::parse(text)).dump() == text);
    }
    CHECK(write<Json>(std::numeric_limits<double>::infinity()) == "Infinity");
}

TEST_CASE("each type has its JSON Schema", "[share][schema]") {
    const char* const number = R"({"anyOf": [{"type": "number"}, {"enum": ["NaN", "Infinity", "-Infinity"]}]})";
    CHECK(has_schema<bool>(R"({"type": "boolean"})"));
    CHECK(has_schema<std::uint8_t>(R"({"type": "integer", "minimum": 0, "maximum": 255})"));
    CHECK(has_schema<std::int64_t>(
        R"({"type": "integer", "minimum": -9223372036854775808, "maximum": 9223372036854775807})"));
    CHECK(schema<std::uint64_t>()["maximum"] == 18446744073709551615U);
    CHECK(has_schema<float>(number));
    CHECK(has_schema<double>(number));
    CHECK(has_schema<std::string>(R"({"type": "string"})"));
    CHECK(has_schema<Bytes>(R"({"type": "string", "contentEncoding": "base64"})"));
    CHECK(has_schema<std::optional<bool>>(R"({"anyOf": [{"type": "boolean"}, {"type": "null"}]})"));
    CHECK(has_schema<std::vector<bool>>(R"({"type": "array", "items": {"type": "boolean"}})"));
    CHECK(has_schema<std::array<bool, 2>>(
        R"({"type": "array", "items": {"type": "boolean"}, "minItems": 2, "maxItems": 2})"));
    CHECK(
        has_schema<std::map<std::string, bool>>(R"({"type": "object", "additionalProperties": {"type": "boolean"}})"));
    CHECK(has_schema<std::pair<bool, std::string>>(
        R"({"type": "array", "prefixItems": [{"type": "boolean"}, {"type": "string"}], "minItems": 2, "maxItems": 2})"));
    CHECK(has_schema<Json>("{}"));
    // "$ref" is wrapped by the sink like any key with '$'; who writes the OpenRPC document takes it out.
    CHECK(has_schema<TensorRef>(R"({"$literal": {"$ref": "#/components/schemas/Tensor"}})"));
}

TEST_CASE("base64 has the texts of RFC 4648, both ways, and bytes of every length come back", "[share][bytes]") {
    const auto bytes_of = [](std::string_view text) {
        const auto bytes = std::as_bytes(std::span(text));
        return std::vector<std::byte>(bytes.begin(), bytes.end());
    };
    for (const auto& [plain, base64] :
         std::vector<std::pair<std::string_view, std::string_view>>{{"", ""},
                                                                    {"f", "Zg=="},
                                                                    {"fo", "Zm8="},
                                                                    {"foo", "Zm9v"},
                                                                    {"foob", "Zm9vYg=="},
                                                                    {"fooba", "Zm9vYmE="},
                                                                    {"foobar", "Zm9vYmFy"},
                                                                    {"\xff\xfe\xfd", "//79"},
                                                                    {"\xfb\xef", "++8="}}) {
        CHECK(encode_base64(bytes_of(plain)) == base64);
        CHECK(decode_base64(base64) == bytes_of(plain));
        CHECK(decoded_base64_size(base64) == plain.size());
    }
    std::mt19937 random(3);
    for (std::size_t size = 0; size < 300; ++size) {
        std::vector<std::byte> bytes(size);
        for (auto& byte : bytes)
            byte = static_cast<std::byte>(random());
        CHECK(decode_base64(encode_base64(bytes)) == bytes);
    }
}

TEST_CASE("what is not canonical base64 is rejected", "[share][bytes]") {
    using namespace std::string_view_literals;
    for (const std::string_view text :
         {"Z"sv, "Zg"sv, "Zg="sv, "Zg==="sv, "="sv, "=="sv, "==="sv, "===="sv, "A==="sv, "Zg==Zg=="sv, "Z=g="sv,
          "Zm 9"sv, "Zm9v\n"sv, "Zm9_"sv, "Zm9-"sv, "Zh=="sv, "Zm9="sv, "\xc3\xa4\xc3\xa4"sv, "Zm9\0"sv}) {
        INFO('"' << text << '"');
        CHECK_FALSE(decode_base64(text));
    }
}
