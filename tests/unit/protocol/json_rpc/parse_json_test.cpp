#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <string>
#include <string_view>

#include "protocol/json_rpc/json_text.hpp"

namespace shared_tensor::json_rpc {
namespace {

using namespace std::string_literals;

std::string nested(std::size_t depth) { return std::string(depth, '[') + std::string(depth, ']'); }

std::string nested_objects(std::size_t depth) {
    std::string text;
    for (std::size_t i = 0; i < depth; ++i)
        text += R"({"a":)";
    return text + "1" + std::string(depth, '}');
}

struct Rejection {
    const char* name;
    std::string text;
};

void check_rejected(const std::vector<Rejection>& table, JsonRejection rejection) {
    for (const auto& row : table) {
        INFO(row.name);
        const auto parsed = parse_json(row.text);
        const auto* error = std::get_if<JsonTextError>(&parsed);
        REQUIRE(error);
        CHECK(error->rejection == rejection);
        CHECK_FALSE(error->detail.empty());
        CHECK(error->detail.size() < 200);
        CHECK_NOTHROW(Json(error->detail).dump());  // strict about UTF-8
    }
}

bool accepted(std::string_view text, const JsonLimits& limits = {}) {
    return std::holds_alternative<Json>(parse_json(text, limits));
}

JsonRejection rejection_of(std::string_view text, const JsonLimits& limits) {
    return std::get<JsonTextError>(parse_json(text, limits)).rejection;
}

TEST_CASE("parse_json: reads every kind of value", "[json_rpc]") {
    const auto value = std::get<Json>(parse_json(
        R"( {"null":null,"yes":true,"no":false,"int":-7,"big":18446744073709551615,"float":2.5e-3,"text":"a\n\u20ac","list":[1,[2,{}]]} )"));
    CHECK(value["null"].is_null());
    CHECK(value["yes"] == true);
    CHECK(value["no"] == false);
    CHECK(value["int"] == -7);
    CHECK(value["big"].get<std::uint64_t>() == 18446744073709551615U);
    CHECK(value["float"].get<double>() == 2.5e-3);
    CHECK(value["text"] == "a\n\xE2\x82\xAC");
    CHECK(value["list"] == Json::array({1, Json::array({2, Json::object()})}));
}

TEST_CASE("parse_json: keeps an integer and a float apart", "[json_rpc]") {
    CHECK(std::get<Json>(parse_json("2")).is_number_integer());
    CHECK(std::get<Json>(parse_json("2.0")).is_number_float());
    CHECK(std::get<Json>(parse_json("2e0")).is_number_float());
}

TEST_CASE("parse_json: rejects what is not JSON", "[json_rpc]") {
    check_rejected(
        {
            {"nothing", ""},
            {"spaces only", "  \n"},
            {"a word", "nope"},
            {"a cut literal", "tru"},
            {"a cut array", "[1,2"},
            {"a cut object", R"({"a":)"},
            {"a cut string", R"("abc)"},
            {"a cut escape", R"("abc\)"},
            {"a cut number", "[-]"},
            {"a trailing comma", "[1,]"},
            {"a trailing comma in an object", R"({"a":1,})"},
            {"a missing colon", R"({"a" 1})"},
            {"a key that is no string", "{1:2}"},
            {"a leading zero", "[01]"},
            {"a leading plus", "[+1]"},
            {"a bare point", "[.5]"},
            {"a point without digits", "[1.]"},
            {"an exponent without digits", "[1e]"},
            {"hexadecimal", "[0x10]"},
            {"NaN", "[NaN]"},
            {"infinity", "[Infinity]"},
            {"a comment", "/* a */ 1"},
            {"single quotes", "['a']"},
            {"an unknown escape", R"(["\x41"])"},
            {"a raw newline in a string", "\"a\nb\""},
            {"the wrong bracket", "[1}"},
            {"a long way to the fault", std::string(4'000'000, '\n') + "x"},
            {"a long string before the fault", '"' + std::string(4'000'000, 'x') + "\xFF"},
            {"half a byte order mark", "\xEF\xBB{}"},
        },
        JsonRejection::syntax);
}

TEST_CASE("parse_json: rejects anything after the value", "[json_rpc]") {
    check_rejected(
        {
            {"a second value", "{} {}"},
            {"a bracket", "[]]"},
            {"a NUL byte", "{}\0"s},
            {"a NUL byte and more", "{}\0garbage"s},
            {"a form feed", "{}\f"},
            {"half a character", "{}\xE2\x82"},
        },
        JsonRejection::syntax);
}

TEST_CASE("parse_json: rejects a NUL byte wherever it stands", "[json_rpc]") {
    check_rejected({{"alone", "\0"s}, {"in front", "\0{}"s}, {"in a string", "\"a\0b\""s}, {"in an array", "[1,\0]"s}},
                   JsonRejection::syntax);
}

TEST_CASE("parse_json: accepts an escaped NUL", "[json_rpc]") {
    CHECK(std::get<Json>(parse_json(R"("a\u0000b")")) == "a\0b"s);
}

TEST_CASE("parse_json: rejects invalid UTF-8", "[json_rpc]") {
    check_rejected(
        {
            {"a stray continuation", "\"\x80\""},
            {"a cut sequence", "\"\xE2\x82\""},
            {"a sequence cut by the end", "\"\xE2\x82"},
            {"an overlong slash", "\"\xC0\xAF\""},
            {"an overlong form of 3 bytes", "\"\xE0\x80\xAF\""},
            {"an encoded surrogate", "\"\xED\xA0\x80\""},
            {"beyond U+10FFFF", "\"\xF4\x90\x80\x80\""},
            {"0xFF", "\"\xFF\""},
            {"Latin-1", "\"caf\xE9\""},
            {"in a key", "{\"\xFF\":1}"},
            {"outside a string", "\xFF"},
        },
        JsonRejection::syntax);
}

TEST_CASE("parse_json: rejects lone surrogates", "[json_rpc]") {
    check_rejected(
        {
            {"high, then nothing", R"("\ud800")"},
            {"high, then a letter", R"("\ud800a")"},
            {"high, then another escape", R"("\ud800\n")"},
            {"high, then high", R"("\ud800\ud800")"},
            {"low alone", R"("\udc00")"},
            {"low, then high", R"("\udc00\ud800")"},
            {"high cut by the end", R"("\ud800\udc0)"},
            {"in a key", R"({"\ud800":1})"},
        },
        JsonRejection::syntax);
}

TEST_CASE("parse_json: accepts a surrogate pair", "[json_rpc]") {
    CHECK(std::get<Json>(parse_json(R"("\ud83d\ude00")")) == "\xF0\x9F\x98\x80");
}

TEST_CASE("parse_json: rejects numbers that do not fit", "[json_rpc]") {
    check_rejected(
        {
            {"1e400", "1e400"},
            {"-1e400", "[-1e400]"},
            {"2^64", "18446744073709551616"},
            {"-2^63 - 1", "-9223372036854775809"},
            {"a hundred thousand digits", std::string(100'000, '9')},
            {"a huge exponent", "1e999999999999999999999"},
            {"a long fraction with a huge exponent", "0." + std::string(100'000, '1') + "e400000"},
            {"as a member", R"({"a":1e400})"},
            {"too close to zero", "[1e-400]"},
            {"a long fraction too close to zero", "0." + std::string(100'000, '0') + "1"},
        },
        JsonRejection::number_range);
}

TEST_CASE("parse_json: accepts the numbers at the edge", "[json_rpc]") {
    for (const char* text : {"18446744073709551615", "-9223372036854775808", "1.7976931348623157e308", "5e-324",
                             "18446744073709551616.0", "0.1000000000000000055511151231257827"}) {
        INFO(text);
        CHECK(accepted(text));
    }
}

TEST_CASE("parse_json: rejects equal keys at any depth", "[json_rpc]") {
    check_rejected(
        {
            {"at the top", R"({"a":1,"a":1})"},
            {"apart", R"({"a":1,"b":2,"a":3})"},
            {"deeper", R"({"a":{"b":[{"c":1,"c":2}]}})"},
            {"one escaped", R"({"a":1,"\u0061":2})"},
            {"empty", R"({"":1,"":2})"},
            {"very long", "{\"" + std::string(100'000, 'k') + "\":1,\"" + std::string(100'000, 'k') + "\":2}"},
            {"with quotes and control characters", R"({"\"\u0001":1,"\"\u0001":2})"},
        },
        JsonRejection::duplicate_key);
}

TEST_CASE("parse_json: takes keys as different that only look alike", "[json_rpc]") {
    CHECK(accepted(R"({"a":1,"A":2,"a ":3,"a\u0000":4})"));
    CHECK(accepted("{\"\xC3\xA9\":1,\"e\xCC\x81\":2}"));  // no Unicode normalisation
    CHECK(accepted(R"([{"a":1},{"a":1}])"));
}

TEST_CASE("parse_json: names a short equal key", "[json_rpc]") {
    CHECK(std::get<JsonTextError>(parse_json(R"({"method":1,"method":2})")).detail.find("\"method\"") !=
          std::string::npos);
}

TEST_CASE("parse_json: says where the fault is", "[json_rpc]") {
    CHECK(std::get<JsonTextError>(parse_json("[1,x]")).detail.find("byte 4") != std::string::npos);
}

TEST_CASE("parse_json: does not repeat the text it rejects", "[json_rpc]") {
    const auto detail = std::get<JsonTextError>(parse_json(R"(["secret\q"])")).detail;
    CHECK(detail.find("secret") == std::string::npos);
}

TEST_CASE("parse_json: allows exactly the depth of the limit", "[json_rpc]") {
    const JsonLimits limits{.max_depth = 3};
    CHECK(accepted("1", limits));
    CHECK(accepted(nested(3), limits));
    CHECK(accepted(nested_objects(3), limits));
    CHECK(accepted("[[[]],[[]]]", limits));
    CHECK(rejection_of(nested(4), limits) == JsonRejection::too_deep);
    CHECK(rejection_of(nested_objects(4), limits) == JsonRejection::too_deep);
}

TEST_CASE("parse_json: allows a depth of 100 by default", "[json_rpc]") {
    CHECK(accepted(nested(100)));
    CHECK(rejection_of(nested(101), {}) == JsonRejection::too_deep);
}

TEST_CASE("parse_json: ends a bomb of nesting at the limit", "[json_rpc]") {
    CHECK(rejection_of(std::string(60'000, '['), {}) == JsonRejection::too_deep);
    CHECK(rejection_of(nested(1'000'000), {}) == JsonRejection::too_deep);
    CHECK(rejection_of(nested_objects(80'000), {}) == JsonRejection::too_deep);
}

TEST_CASE("parse_json: allows exactly the bytes of the limit", "[json_rpc]") {
    const JsonLimits limits{.max_bytes = 5};
    CHECK(accepted("[123]", limits));
    CHECK(rejection_of("[1234]", limits) == JsonRejection::too_large);
}

TEST_CASE("parse_json: allows 64 MiB by default", "[json_rpc]") {
    CHECK(rejection_of(std::string((std::size_t{64} << 20) + 1, ' '), {}) == JsonRejection::too_large);
}

TEST_CASE("parse_json: agrees with the library on every cut and every changed byte of a text", "[json_rpc]") {
    const auto text = R"([{"jsonrpc":"2.0","id":-1.5e3,"a\u00e9\ud83d\ude00":{"x":[true,null,false,"é"]}},0])"s;
    for (std::size_t i = 0; i < text.size(); ++i) {
        CHECK_FALSE(accepted(text.substr(0, i)));
        for (int byte = 0; byte < 256; ++byte) {
            auto changed = text;
            changed[i] = static_cast<char>(byte);
            INFO(changed);
            const auto theirs = Json::parse(changed, nullptr, false);
            const auto ours = parse_json(changed);
            const auto* value = std::get_if<Json>(&ours);
            REQUIRE((value ? *value == theirs && value->dump() == theirs.dump() : theirs.is_discarded()));
        }
    }
}

}  // namespace
}  // namespace shared_tensor::json_rpc
