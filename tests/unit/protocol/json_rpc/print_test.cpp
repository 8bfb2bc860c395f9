#include "protocol/json_rpc/message.hpp"

#include <catch2/catch_test_macros.hpp>
#include <string>

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

}  // namespace
}  // namespace shared_tensor::json_rpc
