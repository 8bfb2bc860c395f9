#include "streams/stream_message.hpp"

#include <catch2/catch_test_macros.hpp>

using namespace shared_tensor;
using streams::LastItem;
using streams::StreamMessage;

namespace {

StreamMessage item(int value) {
    StreamMessage word{StreamMessage::Kind::item, 1};
    word.stream = "items";
    word.value = std::make_shared<const json_rpc::Json>(value);
    return word;
}

}  // namespace

TEST_CASE("An item whose text is that of the one before says the same", "[streams]") {
    LastItem last;
    CHECK(last.find("") == nullptr);
    CHECK(last.find("five") == nullptr);
    last.keep("five", item(5));
    REQUIRE(last.find("five") != nullptr);
    CHECK(*last.find("five")->value == 5);
    CHECK(last.find("five")->stream == "items");
    CHECK(last.find("fiv") == nullptr);
    CHECK(last.find("five ") == nullptr);
    last.keep("six", item(6));
    CHECK(last.find("five") == nullptr);
    CHECK(*last.find("six")->value == 6);
}

TEST_CASE("Neither other words nor long items are remembered", "[streams]") {
    LastItem last;
    last.keep("five", item(5));
    StreamMessage end{StreamMessage::Kind::end, 1};
    last.keep("end", end);
    CHECK(last.find("end") == nullptr);
    const std::string text(5'000, 'x');
    last.keep(text, item(6));
    CHECK(last.find(text) == nullptr);
    CHECK(*last.find("five")->value == 5);  // still good: it says what it says
}
