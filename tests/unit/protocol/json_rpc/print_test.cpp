#include <catch2/catch_test_macros.hpp>
#include <clocale>
#include <cmath>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes/utf8.hpp"
#include "protocol/json_rpc/json_text.hpp"
#include "protocol/json_rpc/message.hpp"

namespace shared_tensor::json_rpc {
namespace {

template <class Printable>
std::string printed(const Printable& value) {
    std::string out;
    print(value, out);
    return out;
}

TEST_CASE("print: responses and requests hold only what they have", "[json_rpc]") {
    CHECK(printed(Response{1, Json(19)}) == R"({"jsonrpc":"2.0","result":19,"id":1})");
    CHECK(printed(Response{"a", Json()}) == R"({"jsonrpc":"2.0","result":null,"id":"a"})");
    CHECK(printed(Response{nullptr, internal_error()}) ==
          R"({"jsonrpc":"2.0","error":{"code":-32603,"message":"Internal error"},"id":null})");
    CHECK(printed(Response{1.5, cancelled("bye")}) ==
          R"({"jsonrpc":"2.0","error":{"code":-32004,"message":"Cancelled","data":{"detail":"bye"}},"id":1.5})");
    CHECK(printed(Request{.method = "f", .params = {}, .id = {}, .meta = {}}) == R"({"jsonrpc":"2.0","method":"f"})");
    CHECK(printed(Request{.method = "f", .params = {{"x", 1}}, .id = Json(), .meta = {{"accept", "shm"}}}) ==
          R"({"jsonrpc":"2.0","method":"f","params":{"x":1},"id":null,"meta":{"accept":"shm"}})");
}

TEST_CASE("print: an error's text may hold any bytes", "[json_rpc]") {
    std::string text = "x";  // it appends, so that a buffer can be reused
    print(Response{1, function_failed("T", "caf\xE9 \"\n")}, text);
    CHECK(text.find("caf\xEF\xBF\xBD \\\"\\n") != std::string::npos);
    CHECK(text.starts_with("x{"));
    CHECK(std::holds_alternative<Json>(parse_json(text.substr(1))));
}

TEST_CASE("result_text finds what print_result has written for that id, and nothing else", "[json_rpc]") {
    LongText long_text;
    print_result(12, Json{{"a", Json::array({1})}}, long_text);
    const std::string text = long_text.take_whole();
    CHECK(result_text(text, 12) == R"({"a":[1]})");
    CHECK_FALSE(result_text(text, 2));
    CHECK_FALSE(result_text(text, 112));
    CHECK_FALSE(result_text(text, 1));
    CHECK_FALSE(result_text(text + " ", 12));
    for (std::size_t size = 0; size < text.size(); ++size)
        CHECK_FALSE(result_text(text.substr(0, size), 12));
    CHECK_FALSE(result_text(printed(Response{"12", Json(1)}), 12));
    CHECK_FALSE(result_text(printed(Response{12, internal_error()}), 12));
    CHECK_FALSE(result_text(R"({"jsonrpc":"2.0","id":12,"result":1})", 12));
    CHECK(result_text(R"({"jsonrpc":"2.0","result":,"id":12})", 12) == "");
}

TEST_CASE("print: parts of a result and of parameters may be printed in another way", "[json_rpc]") {
    struct Never final : SpecialPrinter {
        Did print(const Json&, LongText& out) override {
            out += "never";
            return Did::all;
        }
    } special;
    LongText out;
    print_result(Json{{"id", 1}}, Json::array({Json{{"x", 1}}}), out, &special);
    CHECK(out.take_whole() == R"({"jsonrpc":"2.0","result":[never],"id":{"id":1}})");
    print(Request{.method = "f", .params = Json::array({Json{{"x", 1}}}), .id = 1, .meta = {{"accept", "shm"}}}, out,
          &special);
    CHECK(out.take_whole() == R"({"jsonrpc":"2.0","method":"f","params":[never],"id":1,"meta":{"accept":"shm"}})");
}

TEST_CASE("print: a request reads back as it was", "[json_rpc]") {
    for (const Request& request : std::vector<Request>{
             {.method = "a", .params = Json::array({1, "x"}), .id = Json("i"), .meta = {}},
             {.method = "b\"\n", .params = {}, .id = {}, .meta = {}},
             {.method = "", .params = Json::object(), .id = Json(2.0), .meta = Json::object()},
         }) {
        const auto read = std::get<Request>(std::get<Message>(parse(printed(request))).items.at(0));
        CHECK(read.method == request.method);
        CHECK(read.params == request.params);
        CHECK(read.id == request.id);
        CHECK(read.meta == request.meta);
    }
}

using namespace std::string_literals;

std::string printed_json(const Json& value) {
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
        CHECK(printed_json(value) == text);
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
    CHECK(printed_json(1.5) == "1.5");
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
    CHECK(printed_json(value) == std::string(kDepth, '[') + std::string(kDepth, ']'));
}

}  // namespace
}  // namespace shared_tensor::json_rpc
