#include "protocol/json_rpc/json_text.hpp"

#include <catch2/catch_test_macros.hpp>
#include <string>
#include <vector>

namespace shared_tensor::json_rpc {
namespace {

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
