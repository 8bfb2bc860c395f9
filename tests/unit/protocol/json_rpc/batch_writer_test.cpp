#include "protocol/json_rpc/message.hpp"

#include <catch2/catch_test_macros.hpp>
#include <string>
#include <vector>

namespace shared_tensor::json_rpc {
namespace {

std::string printed(const Response& response) {
    std::string text;
    print(response, text);
    return text;
}

std::string written(const std::vector<Response>& responses, std::size_t max_bytes) {
    LongText text;
    BatchWriter writer(text, max_bytes);
    for (const auto& response : responses)
        writer.expect(response.id);
    for (const auto& response : responses)
        writer.add(response.id, printed(response));
    writer.finish();
    return text.take_whole();
}

bool is_too_large(const Json& response) { return response.contains("error") && response["error"]["code"] == -32003; }

TEST_CASE("BatchWriter: joins answers to an array, in the order in which they come, and says nothing of none",
          "[json_rpc]") {
    LongText text;
    BatchWriter(text).finish();
    CHECK(text.size() == 0);
    BatchWriter writer(text, 1000);
    writer.expect(1);
    writer.expect("x");
    writer.add("x", printed({"x", internal_error()}));
    writer.add(1, printed({1, Json("a")}));
    writer.finish();
    CHECK(text.take_whole() == R"([{"jsonrpc":"2.0","error":{"code":-32603,"message":"Internal error"},"id":"x"},)"
                               R"({"jsonrpc":"2.0","result":"a","id":1}])");
}

TEST_CASE("BatchWriter: fills the limit to its last byte, and never passes it", "[json_rpc]") {
    const std::vector<Response> responses = {{1, Json(std::string(300, 'a'))}, {2, Json(std::string(300, 'b'))}};
    const auto exact = written(responses, 100'000).size();
    CHECK(written(responses, exact).size() == exact);
    const auto cut = Json::parse(written(responses, exact - 1));
    REQUIRE(cut.size() == 2);
    CHECK(cut[0]["result"] == std::string(300, 'a'));
    CHECK(is_too_large(cut[1]));
    CHECK(cut[1]["id"] == 2);
}

TEST_CASE("BatchWriter: an item that does not fit takes no other item's place", "[json_rpc]") {
    const auto answer =
        Json::parse(written({{1, Json("small")}, {2, Json(std::string(5000, 'x'))}, {3, Json("small")}}, 1000));
    REQUIRE(answer.size() == 3);
    CHECK(answer[0]["result"] == "small");
    CHECK(is_too_large(answer[1]));
    CHECK(answer[1]["error"]["data"]["limit_bytes"] == 1000);
    CHECK(answer[2]["result"] == "small");
}

TEST_CASE("BatchWriter: a big answer leaves room for the errors of all others", "[json_rpc]") {
    std::vector<Response> responses = {{0, Json(std::string(800, 'x'))}};
    for (int id = 1; id < 50; ++id)
        responses.push_back({id, Json(std::string(300, 'y'))});
    const auto text = written(responses, 10'000);
    CHECK(text.size() <= 10'000);
    const auto answer = Json::parse(text);
    REQUIRE(answer.size() == 50);
    for (int id = 0; id < 50; ++id)
        CHECK(answer[static_cast<std::size_t>(id)]["id"] == id);
}

TEST_CASE("BatchWriter: keeps to the limit whatever it is", "[json_rpc]") {
    const std::vector<Response> responses = {
        {1, Json(std::string(40, 'a'))}, {"two", Json(std::string(400, 'b'))}, {nullptr, invalid_request("no")}};
    const auto smallest = written(responses, 0).size();
    for (std::size_t limit = smallest + 2; limit < 1200; ++limit) {  // + 2: the limit prints with up to two digits more
        const auto text = written(responses, limit);
        INFO(limit << ": " << text);
        REQUIRE(text.size() <= limit);
        const auto answer = Json::parse(text);
        REQUIRE((answer.is_object() ? is_too_large(answer) : answer.size() == 3));
    }
}

TEST_CASE("BatchWriter: when not even the errors fit, one error answers the batch", "[json_rpc]") {
    std::vector<Response> responses;
    for (int i = 0; i < 20; ++i)
        responses.push_back({std::string(100, 'i'), Json(i)});
    const auto answer = Json::parse(written(responses, 1000));
    CHECK(answer.is_object());
    CHECK(is_too_large(answer));
    CHECK(answer["id"].is_null());
}

TEST_CASE("BatchWriter: stops an answer that is being printed at the limit", "[json_rpc]") {
    LongText text;
    BatchWriter writer(text, 1000);
    writer.expect(1);
    writer.expect(2);
    std::size_t printed_bytes = 0;
    writer.add(1, [&](LongText& out) {
        for (; printed_bytes < 1'000'000; ++printed_bytes)
            out += 'x';
    });
    CHECK(printed_bytes < 1000);
    writer.add(2, printed({2, Json("b")}));
    writer.finish();
    const auto answer = Json::parse(text.take_whole());
    CHECK(is_too_large(answer[0]));
    CHECK(answer[1]["result"] == "b");
}

}  // namespace
}  // namespace shared_tensor::json_rpc
