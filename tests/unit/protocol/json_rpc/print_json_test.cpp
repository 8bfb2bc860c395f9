#include <catch2/catch_test_macros.hpp>
#include <clocale>
#include <cmath>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "protocol/json_rpc/json_text.hpp"
#include "protocol/json_rpc/utf8.hpp"

namespace shared_tensor::json_rpc {
namespace {

using namespace std::string_literals;

std::string printed(const Json& value) {
    std::string out;
    print_json(value, out);
    return out;
}

std::string printed_string(std::string_view text) {
    std::string out;
    print_json_string(text, out);
    return out;
}

TEST_CASE("print_json: prints every kind of value, compact, exactly and as the kind that it is", "[json_rpc]") {
    const std::pair<Json, const char*> table[] = {
        {nullptr, "null"},
        {true, "true"},
        {false, "false"},
        {-7, "-7"},
        {"a", R"("a")"},
        {Json::array({1, Json::array(), Json::array({2, 3}), Json::object()}), "[1,[],[2,3],{}]"},
        {{{"b", {{"c", 1}, {"d", "x"}}}, {"a", Json::array({nullptr})}}, R"({"a":[null],"b":{"c":1,"d":"x"}})"},
        {Json::array({"[", "{", "x"}), R"(["[","{","x"])"},  // no bracket in a string swallows the comma
        {{{"[", "{"}, {"b", 1}}, R"({"[":"{","b":1})"},
        {{{"a\"\n", 1}}, R"({"a\"\n":1})"},
        {std::numeric_limits<std::int64_t>::min(), "-9223372036854775808"},
        {std::numeric_limits<std::uint64_t>::max(), "18446744073709551615"},
        {2.0, "2.0"},
        {-0.0, "-0.0"},
        {0.1, "0.1"},
        {1e300, "1e+300"},
        {5e-324, "5e-324"},
        {std::nan(""), "null"},  // what JSON cannot say
        {std::numeric_limits<double>::infinity(), "null"},
        {-std::numeric_limits<double>::infinity(), "null"},
        {Json::binary({1, 2}), "null"},
        {Json(Json::value_t::discarded), "null"},
    };
    for (const auto& [value, text] : table)
        CHECK(printed(value) == text);
    std::string out = "[";  // it appends
    print_json(Json::array({1, 2}), out);
    CHECK(out == "[[1,2]");
}

TEST_CASE("print_json: what must be escaped is found at every place of a string", "[json_rpc]") {
    const auto is_plain = [](int byte) { return byte >= 0x20 && byte < 0x80 && byte != '"' && byte != '\\'; };
    for (int byte = 0; byte < 256; ++byte) {
        for (std::size_t size = 1; size <= 20; ++size) {
            for (std::size_t at = 0; at < size; ++at) {
                std::string text(size, '~');
                text[at] = static_cast<char>(byte);
                if (at > 0) text[at - 1] = '\x7f';
                INFO("byte " << byte << " at " << at << " of " << size);
                REQUIRE(unescaped_prefix(text) == (is_plain(byte) ? size : at));
            }
        }
    }
}

namespace {

/// {"n": N} is printed as N dots, {"raw": x} says that x is none of ours.
class Dots final : public SpecialPrinter {
public:
    Did print(const Json& object, LongText& out) override {
        ++asked;
        if (object.contains("raw")) return Did::wrapper;
        if (!object.contains("n")) return Did::nothing;
        out += std::string(object["n"].get<std::size_t>(), '.');
        return Did::all;
    }
    int asked = 0;
};

std::string with_dots(const char* json) {
    Dots dots;
    LongText out;
    print_json(Json::parse(json), out, &dots);
    return out.take_whole();
}

}  // namespace

TEST_CASE("print_json: objects of one member may be printed in another way", "[json_rpc]") {
    CHECK(with_dots(R"({"n":3})") == "...");
    CHECK(with_dots(R"([{"n":1},{"a":{"n":2}},{"n":1,"m":1},[{"n":0}],7])") == R"([.,{"a":..},{"m":1,"n":1},[],7])");
    CHECK(with_dots(R"({"raw":{"n":1}})") == R"({"raw":{"n":1}})");
    CHECK(with_dots(R"({"raw":{"n":{"n":1}}})") == R"({"raw":{"n":.}})");
    CHECK(with_dots(R"({"raw":[{"n":1}]})") == R"({"raw":[.]})");
    Dots dots;
    LongText out;
    print_json(Json::parse(R"([1,"x",[],{},{"a":1,"b":2}])"), out, &dots);
    CHECK(dots.asked == 0);
}

TEST_CASE("print_json: numbers don't follow the locale", "[json_rpc]") {
    const std::string before = std::setlocale(LC_NUMERIC, nullptr);
    std::setlocale(LC_NUMERIC, "de_DE.UTF-8");  // where it is missing the test still holds
    CHECK(printed(1.5) == "1.5");
    std::setlocale(LC_NUMERIC, before.c_str());
}

TEST_CASE("print_json: escapes what must be escaped, and nothing else", "[json_rpc]") {
    CHECK(printed_string("\"\\/\b\f\n\r\t") == R"("\"\\/\b\f\n\r\t")");
    CHECK(printed_string("\0\x01\x1f\x20\x7f"s) == "\"\\u0000\\u0001\\u001f \x7f\"");
    CHECK(printed_string("caf\xC3\xA9 \xF0\x9F\x98\x80") == "\"caf\xC3\xA9 \xF0\x9F\x98\x80\"");
}

TEST_CASE("print_json: replaces invalid UTF-8 as Unicode advises, and leaves all of Unicode unchanged", "[json_rpc]") {
    // a dot stands for the replacement character
    const std::pair<const char*, const char*> table[] = {
        {"\xFF", "."},
        {"a\x80z", "a.z"},
        {"\xE2\x82", "."},  // cut by the end: one for the whole
        {"\xE2\x82 z", ". z"},
        {"\xF0\x9F\x98", "."},
        {"\xC0\xAF", ".."},  // overlong: one each
        {"\xE0\x80\x80", "..."},
        {"\xED\xA0\x80", "..."},  // a surrogate
        {"\xF4\x90\x80\x80", "...."},
        {"\xF5", "."},
        {"\xC3\xC3\xA9", ".\xC3\xA9"},  // resumes with the next lead byte
        {"\xC2\"", ".\\\""},            // and never eats a quote
    };
    for (const auto& [text, marked] : table) {
        std::string expected;
        for (const char c : std::string_view(marked))
            expected += c == '.' ? "\xEF\xBF\xBD" : std::string(1, c);
        INFO(marked);
        CHECK(printed_string(text) == '"' + expected + '"');
    }
    for (const char* text : {"\xC2\x80", "\xDF\xBF", "\xE0\xA0\x80", "\xED\x9F\xBF", "\xEE\x80\x80", "\xEF\xBF\xBF",
                             "\xF0\x90\x80\x80", "\xF4\x8F\xBF\xBF"})
        CHECK(printed_string(text) == '"' + std::string(text) + '"');
}

TEST_CASE("print_json: its text parses whatever bytes a string holds", "[json_rpc]") {
    for (int first = 0; first < 256; ++first) {
        for (int second = 0; second < 256; ++second) {
            const std::string text{static_cast<char>(first), static_cast<char>(second)};
            INFO(first << ' ' << second);
            REQUIRE(std::holds_alternative<Json>(parse_json(printed_string(text))));
        }
    }
}

TEST_CASE("print_json: a value too deep for the call stack prints", "[json_rpc]") {
    constexpr std::size_t kDepth = 200'000;
    Json value = Json::array();
    for (std::size_t i = 1; i < kDepth; ++i) {
        Json outer = Json::array();
        outer.push_back(std::move(value));
        value = std::move(outer);
    }
    CHECK(printed(value) == std::string(kDepth, '[') + std::string(kDepth, ']'));
}

}  // namespace
}  // namespace shared_tensor::json_rpc
