#include <bit>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <string_view>
#include <vector>

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

void check_rejected(JsonRejection rejection, const std::vector<std::string>& texts) {
    for (const std::string& text : texts) {
        INFO(text.substr(0, 200));
        const auto parsed = parse_json(text);
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

TEST_CASE("parse_json: rejects what is not JSON, and anything after the value", "[json_rpc]") {
    check_rejected(JsonRejection::syntax, {"",
                                           "  \n",
                                           "nope",
                                           "tru",
                                           "[1,2",
                                           R"({"a":)",
                                           R"("abc)",
                                           R"("abc\)",
                                           "[-]",
                                           "[1,]",
                                           R"({"a":1,})",
                                           R"({"a" 1})",
                                           "{1:2}",
                                           "[01]",
                                           "[+1]",
                                           "[.5]",
                                           "[1.]",
                                           "[1e]",
                                           "[0x10]",
                                           "[NaN]",
                                           "[Infinity]",
                                           "/* a */ 1",
                                           "['a']",
                                           R"(["\x41"])",
                                           "\"a\nb\"",
                                           "[1}",
                                           "\xEF\xBB{}",
                                           std::string(4'000'000, '\n') + "x",
                                           '"' + std::string(4'000'000, 'x') + "\xFF",  // far behind
                                           "{} {}",
                                           "[]]",
                                           "{}\f",
                                           "{}\xE2\x82",
                                           "{}\0"s,
                                           "{}\0garbage"s});
}

TEST_CASE("parse_json: rejects a NUL byte, invalid UTF-8 and lone surrogates wherever they stand", "[json_rpc]") {
    check_rejected(JsonRejection::syntax, {"\0"s, "\0{}"s, "\"a\0b\""s, "[1,\0]"s});
    check_rejected(JsonRejection::syntax,
                   {"\"\x80\"", "\"\xE2\x82\"", "\"\xE2\x82", "\"\xFF\"", "\"caf\xE9\"", "{\"\xFF\":1}", "\xFF",
                    "\"\xC0\xAF\"", "\"\xE0\x80\xAF\"",            // overlong
                    "\"\xED\xA0\x80\"", "\"\xF4\x90\x80\x80\""});  // a surrogate, and beyond U+10FFFF
    check_rejected(JsonRejection::syntax, {R"("\ud800")", R"("\ud800a")", R"("\ud800\n")", R"("\ud800\ud800")",
                                           R"("\udc00")", R"("\udc00\ud800")", R"("\ud800\udc0)", R"({"\ud800":1})"});
    CHECK(std::get<Json>(parse_json(R"("a\u0000b\ud83d\ude00")")) == "a\0b\xF0\x9F\x98\x80"s);
}

TEST_CASE("parse_json: accepts numbers to the edge of their range, and keeps integers and floats apart", "[json_rpc]") {
    check_rejected(JsonRejection::number_range,
                   {"1e400", "[-1e400]", R"({"a":1e400})", "[1e-400]", "18446744073709551616", "-9223372036854775809",
                    "1e999999999999999999999", std::string(100'000, '9'), "0." + std::string(100'000, '1') + "e400000",
                    "0." + std::string(100'000, '0') + "1"});
    for (const char* text : {"18446744073709551615", "-9223372036854775808", "1.7976931348623157e308", "5e-324",
                             "18446744073709551616.0", "0.1000000000000000055511151231257827"}) {
        INFO(text);
        CHECK(accepted(text));
    }
    CHECK(std::get<Json>(parse_json("2")).is_number_integer());
    CHECK(std::get<Json>(parse_json("2.0")).is_number_float());
    CHECK(std::get<Json>(parse_json("2e0")).is_number_float());
}

TEST_CASE("parse_json: rejects equal keys at any depth, but not keys that only look alike", "[json_rpc]") {
    const std::string key(100'000, 'k');
    check_rejected(
        JsonRejection::duplicate_key,
        {R"({"a":1,"a":1})", R"({"a":1,"b":2,"a":3})", R"({"a":{"b":[{"c":1,"c":2}]}})", R"({"a":1,"\u0061":2})",
         R"({"":1,"":2})", "{\"" + key + "\":1,\"" + key + "\":2}", R"({"\"\u0001":1,"\"\u0001":2})"});
    CHECK(accepted(R"({"a":1,"A":2,"a ":3,"a\u0000":4})"));
    CHECK(accepted("{\"\xC3\xA9\":1,\"e\xCC\x81\":2}"));  // no Unicode normalisation
    CHECK(accepted(R"([{"a":1},{"a":1}])"));
}

TEST_CASE("parse_json: says where the fault is, and which key is there twice, but does not repeat the text",
          "[json_rpc]") {
    const auto detail = [](std::string_view text) { return std::get<JsonTextError>(parse_json(text)).detail; };
    CHECK(detail("[1,x]").find("byte 4") != std::string::npos);
    CHECK(detail(R"({"method":1,"method":2})").find("\"method\"") != std::string::npos);
    CHECK(detail(R"(["secret\q"])").find("secret") == std::string::npos);
}

TEST_CASE("parse_json: allows exactly the depth and the bytes of its limits", "[json_rpc]") {
    for (const std::size_t depth : {3, 100}) {  // 100 is the default
        const JsonLimits limits = depth == 100 ? JsonLimits{} : JsonLimits{.max_depth = depth};
        CHECK(accepted(nested(depth), limits));
        CHECK(accepted(nested_objects(depth), limits));
        CHECK(rejection_of(nested(depth + 1), limits) == JsonRejection::too_deep);
        CHECK(rejection_of(nested_objects(depth + 1), limits) == JsonRejection::too_deep);
    }
    CHECK(accepted("[[[]],[[]]]", {.max_depth = 3}));
    CHECK(rejection_of(std::string(60'000, '['), {}) == JsonRejection::too_deep);
    CHECK(rejection_of(nested(1'000'000), {}) == JsonRejection::too_deep);
    CHECK(rejection_of(nested_objects(80'000), {}) == JsonRejection::too_deep);
    CHECK(accepted("[123]", {.max_bytes = 5}));
    CHECK(rejection_of("[1234]", {.max_bytes = 5}) == JsonRejection::too_large);
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

// Makes values of every kind, favouring the edges. Seeded: a failure names its seed and can be run again.
class RandomJson {
public:
    explicit RandomJson(std::uint32_t seed) : random_(seed) {}

    Json value(int depth) {
        switch (below(depth > 0 ? 9 : 7)) {
            case 0: return nullptr;
            case 1: return below(2) == 1;
            case 2: return static_cast<std::int64_t>(bits());
            case 3: return bits();
            case 4: return static_cast<std::int64_t>(below(5)) - 2;
            case 5: return number();
            case 6: return text();
            case 7: return array(depth);
            default: return object(depth);
        }
    }

private:
    std::uint64_t bits() { return random_() >> below(64); }
    std::uint64_t below(std::uint64_t end) { return random_() % end; }

    double number() {
        const double value = std::bit_cast<double>(random_());  // every double, denormal and huge ones included
        return std::isfinite(value) ? value : static_cast<double>(below(1000)) / 8;
    }

    std::string text() {
        static constexpr const char* kPieces[] = {"a",
                                                  "\"",
                                                  "\\",
                                                  "\n",
                                                  "\x01",
                                                  "/",
                                                  "\x7f",
                                                  "\xC3\xA9",
                                                  "\xE2\x82\xAC",
                                                  "\xF0\x9F\x98\x80",
                                                  "\xEF\xBF\xBF",
                                                  "$tensor",
                                                  " "};
        std::string text;
        for (auto count = below(12); count > 0; --count)
            text += kPieces[below(std::size(kPieces))];
        if (below(8) == 0) text.push_back('\0');
        return text;
    }

    Json array(int depth) {
        Json items = Json::array();
        for (auto count = below(5); count > 0; --count)
            items.push_back(value(depth - 1));
        return items;
    }

    Json object(int depth) {
        Json members = Json::object();
        for (auto count = below(5); count > 0; --count)
            members[text()] = value(depth - 1);
        return members;
    }

    std::mt19937_64 random_;
};

TEST_CASE("json_rpc: what is printed reads back equal, to the last bit and kind of number", "[json_rpc]") {
    for (std::uint32_t seed = 0; seed < 5000; ++seed) {
        const Json value = RandomJson(seed).value(6);
        std::string text;
        print_json(value, text);
        const auto parsed = parse_json(text);
        INFO("seed " << seed << ": " << text);
        REQUIRE(std::holds_alternative<Json>(parsed));
        REQUIRE(std::get<Json>(parsed) == value);
        std::string again;
        print_json(std::get<Json>(parsed), again);
        REQUIRE(again == text);  // equality of values does not tell 2 from 2.0, nor 0.0 from -0.0
    }
}

}  // namespace
}  // namespace shared_tensor::json_rpc
