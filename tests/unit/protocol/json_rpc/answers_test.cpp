#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <set>
#include <string>
#include <vector>

#include "protocol/json_rpc/error.hpp"
#include "protocol/json_rpc/json_text.hpp"
#include "protocol/json_rpc/message.hpp"

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

/// In pieces of 4, then 6 bytes; remembers what it was asked for.
class Pieces final : public LongText {
public:
    Pieces() : LongText(4, 6) {}
    std::vector<std::size_t> asked;
    std::size_t may_ask = 100, given_back = 0;

protected:
    void make_room(std::size_t bytes) override {
        if (asked.size() == may_ask) throw std::runtime_error("no room");
        asked.push_back(bytes);
    }
    void give_back_room() override { ++given_back; }
};

}  // namespace

TEST_CASE("LongText: a long text lies in pieces, and memory for each is asked for", "[json_rpc]") {
    Pieces text;
    ((text += "abc") += 'd').append("efghijkl");
    CHECK(text.size() == 12);
    CHECK(text.back() == 'l');
    CHECK(text.asked == std::vector<std::size_t>{6, 6});
    CHECK(text.take_pieces() == std::vector<std::string>{"abcd", "efghij", "kl"});
    CHECK(text.size() == 0);
}

TEST_CASE("LongText: without pieces it is one string, and goes on behind its start", "[json_rpc]") {
    LongText text("start ");
    text += std::string(100'000, 'x');
    CHECK(text.is_one_piece());
    CHECK(text.take_whole() == "start " + std::string(100'000, 'x'));
    CHECK(text.take_pieces().empty());
}

TEST_CASE("LongText: the room of pieces that are cut off is given back, and asked for again", "[json_rpc]") {
    Pieces text;
    text += "abcdefghijklmn";  // 4, 6 and 4 bytes
    text.truncate(5);
    CHECK(text.given_back == 1);
    text.truncate(2);
    CHECK(text.given_back == 2);
    text += "CDEF";
    CHECK(text.asked == std::vector<std::size_t>{6, 6, 6});
    CHECK(text.take_pieces() == std::vector<std::string>{"abCD", "EF"});
}

TEST_CASE("LongText: ends at its limit, which an expected size meets first", "[json_rpc]") {
    Pieces text;
    text.set_limit(10);
    text += "abcdefgh";
    text.expect(2);
    CHECK_THROWS_AS(text.expect(3), TextTooLong);
    CHECK_THROWS_AS(text.expect(LongText::kNoLimit), TextTooLong);
    CHECK_THROWS_AS(text += "ijk", TextTooLong);
    CHECK(text.size() == 8);
    text += "ij";
    CHECK_THROWS_AS(text += 'k', TextTooLong);
    CHECK(text.take_whole() == "abcdefghij");
}

TEST_CASE("LongText: can be cut back at every place, and written on", "[json_rpc]") {
    const std::string whole = "abcdefghijklmnop";
    for (std::size_t size = 0; size <= whole.size(); ++size) {
        Pieces text;
        text += whole;
        text.truncate(size);
        CHECK(text.size() == size);
        text += "123456789";
        CHECK(text.take_whole() == whole.substr(0, size) + "123456789");
    }
}

TEST_CASE("LongText: what finds no memory for a piece ends the text there", "[json_rpc]") {
    Pieces text;
    text.may_ask = 1;
    CHECK_THROWS_AS(text += "abcdefghijklmnop", std::runtime_error);
    CHECK(text.size() == 10);
}

TEST_CASE("LongText: JSON prints the same into it as into a string", "[json_rpc]") {
    const Json value{{"a", {1, -2, 3.0, 0.1, true, nullptr}}, {"b\n", "\u00fc\"\\\x01"}, {"c", Json::object()}};
    std::string expected;
    print_json(value, expected);
    Pieces text;
    print_json(value, text);
    CHECK(text.take_whole() == expected);
}

}  // namespace shared_tensor::json_rpc

namespace shared_tensor::json_rpc {
namespace {

struct Row {
    Error error;
    int code;
    const char* message;
    Json data;
};

const std::vector<Row>& every_error() {
    using std::chrono::milliseconds;
    static const std::vector<Row> rows = {
        {parse_error("byte 3"), -32700, "Parse error", {{"detail", "byte 3"}}},
        {invalid_request("no id"), -32600, "Invalid Request", {{"detail", "no id"}}},
        {invalid_params("too many"), -32602, "Invalid params", {{"detail", "too many"}}},
        {invalid_params("x", "number", "string"),
         -32602,
         "Invalid params",
         {{"parameter", "x"}, {"expected", "number"}, {"got", "string"}}},
        {internal_error(), -32603, "Internal error", nullptr},
        {function_failed("std::runtime_error", "no"),
         -32000,
         "Function failed",
         {{"type", "std::runtime_error"}, {"message", "no"}}},
        {busy(milliseconds(250)), -32001, "Server busy", {{"retry_after_ms", 250}}},
        {deadline_exceeded("after 30 s"), -32002, "Deadline exceeded", {{"detail", "after 30 s"}}},
        {cancelled("by its owner"), -32004, "Cancelled", {{"detail", "by its owner"}}},
        {unknown_or_expired("task", "e1"), -32005, "Unknown or expired", {{"kind", "task"}, {"epoch", "e1"}}},
        {transport_not_possible({{"cuda_ipc", "another host"}}),
         -32006,
         "Transport not possible",
         {{"reasons", {{"cuda_ipc", "another host"}}}}},
        {not_authorised("send a token"), -32007, "Not authorised", {{"detail", "send a token"}}},
        {out_of_memory("on the host"), -32008, "Out of memory", {{"detail", "on the host"}}},
        {input_failed("a"), -32010, "Input failed", {{"item", "a"}}},
        {input_failed(7), -32010, "Input failed", {{"item", 7}}},
    };
    return rows;
}

TEST_CASE("errors: code, message and data are the protocol's", "[json_rpc]") {
    for (const auto& row : every_error()) {
        INFO(row.message);
        CHECK(row.error.code == row.code);
        CHECK(row.error.message == row.message);
        CHECK(row.error.data == row.data);
    }
}

TEST_CASE("errors: those that know what to do say so", "[json_rpc]") {
    const auto unknown = method_not_found("ad");
    CHECK(unknown.is(ErrorCode::method_not_found));
    CHECK(unknown.data["method"] == "ad");
    CHECK(unknown.data["detail"].get<std::string>().find("rpc.discover") != std::string::npos);
    const auto large = response_too_large(100);
    CHECK(large.is(ErrorCode::response_too_large));
    CHECK(large.data["limit_bytes"] == 100);
    CHECK(large.data.contains("detail"));
    CHECK(shutting_down().is(ErrorCode::shutting_down));
    CHECK(shutting_down().data.contains("detail"));
}

TEST_CASE("errors: every code has a message of its own, and one of another server has one too", "[json_rpc]") {
    std::set<std::string_view> messages;
    for (const auto& [first, last] : {std::pair(-32000, -32010), {-32600, -32603}, {-32700, -32700}}) {
        for (int code = first; code >= last; --code)
            messages.insert(standard_message(static_cast<ErrorCode>(code)));
    }
    CHECK(messages.size() == 16);
    CHECK_FALSE(messages.contains("Server error"));
    CHECK(standard_message(static_cast<ErrorCode>(-32050)) == "Server error");
}

}  // namespace
}  // namespace shared_tensor::json_rpc
