#include <catch2/catch_test_macros.hpp>
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

/// In pieces of 4, then 6 bytes; remembers what it was asked for.
class Pieces final : public LongText {
public:
    Pieces() : LongText(4, 6) {}
    std::vector<std::size_t> asked;
    std::size_t given_back = 0;

protected:
    void make_room(std::size_t bytes) override { asked.push_back(bytes); }
    void give_back_room() override { ++given_back; }
};

}  // namespace

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

TEST_CASE("errors: every code has a message of its own, and one of another server has one too", "[json_rpc]") {
    std::set<std::string_view> messages;
    for (const auto& [first, last] : {std::pair(-32000, -32011), {-32600, -32603}, {-32700, -32700}}) {
        for (int code = first; code >= last; --code)
            messages.insert(standard_message(static_cast<ErrorCode>(code)));
    }
    CHECK(messages.size() == 17);
    CHECK_FALSE(messages.contains("Server error"));
    CHECK(standard_message(static_cast<ErrorCode>(-32050)) == "Server error");
}

}  // namespace shared_tensor::json_rpc
