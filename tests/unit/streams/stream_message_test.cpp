#include <catch2/catch_test_macros.hpp>

#include "protocol/json_rpc/message.hpp"
#include "streams/stream_message.hpp"

namespace shared_tensor::test {
namespace {

using json_rpc::Json;
using streams::LastItem;
using streams::StreamMessage;
using Kind = streams::StreamMessage::Kind;

std::variant<StreamMessage, std::string> read(const std::string& text) {
    auto parsed = json_rpc::parse(text);
    return streams::read_stream_message(
        std::move(std::get<json_rpc::Request>(std::get<json_rpc::Message>(parsed).items.front())));
}

StreamMessage word(const std::string& text) { return std::get<StreamMessage>(read(text)); }

StreamMessage item(int value) {
    StreamMessage message{StreamMessage::Kind::item, 1};
    message.stream = "items";
    message.value = std::make_shared<const json_rpc::Json>(value);
    return message;
}

TEST_CASE("words read back as they were said", "[streams]") {
    const Json id = "call \"1\"";
    const StreamMessage item = word(streams::item_start(id, "a\nb") + "[1,2]" + streams::item_end(77));
    CHECK(item.kind == Kind::item);
    CHECK(item.call == id);
    CHECK(item.stream == "a\nb");
    CHECK(*item.value == Json{1, 2});
    CHECK(item.elsewhere_bytes == 77);
    CHECK(word(streams::item_start(7, "x") + "null" + streams::item_end(0)).value->is_null());
    CHECK(word(streams::end(7, "x")).kind == Kind::end);
    CHECK(word(streams::stop(7, "x")).kind == Kind::stop);
    CHECK(word(streams::cancel(7)).kind == Kind::cancel);
    const StreamMessage taken = word(streams::taken(7, "x", 1'000'000'000'000));
    CHECK(taken.kind == Kind::taken);
    CHECK(taken.taken == 1'000'000'000'000);
    const StreamMessage ready = word(streams::ready(7, {{"in", true}, {"out", false}}, {5, 6}));
    CHECK(ready.kind == Kind::ready);
    REQUIRE(ready.streams.size() == 2);
    CHECK(ready.streams[0].reads);
    CHECK_FALSE(ready.streams[1].reads);
    CHECK(ready.window.items == 5);
    CHECK(ready.window.bytes == 6);
}

TEST_CASE("what is no word is told why", "[streams]") {
    const auto rejection = [](const std::string& method, const std::string& params, const std::string& more = "") {
        const auto got = read(R"({"jsonrpc":"2.0","method":")" + method + R"(","params":)" + params + more + "}");
        return std::holds_alternative<std::string>(got) ? std::get<std::string>(got) : std::string();
    };
    CHECK(rejection("stream.end", R"({"call":1,"stream":"x"})").empty());
    CHECK_FALSE(rejection("stream.end", R"({"call":1,"stream":"x"})", R"(,"id":1)").empty());
    for (const char* params : {"[1]", "{}", R"({"call":null,"stream":"x"})", R"({"call":[],"stream":"x"})",
                               R"({"call":1})", R"({"call":1,"stream":7})"})
        CHECK_FALSE(rejection("stream.end", params).empty());
    CHECK_FALSE(rejection("stream.item", R"({"call":1,"stream":"x"})").empty());
    CHECK_FALSE(rejection("stream.item", R"({"call":1,"stream":"x","value":1,"elsewhere_bytes":-1})").empty());
    CHECK_FALSE(rejection("stream.item", R"({"call":1,"stream":"x","value":1,"elsewhere_bytes":18446744073709551000})")
                    .empty());
    for (const char* items : {"-1", "1.5", "\"1\"", "null"})
        CHECK_FALSE(rejection("stream.taken", R"({"call":1,"stream":"x","items":)" + std::string(items) + "}").empty());
    CHECK_FALSE(rejection("stream.taken", R"({"call":1,"stream":"x"})").empty());
    for (const char* streams :
         {"null", "{}", "[1]", R"([{"name":"x"}])", R"([{"name":"x","flow":"up"}])", R"([{"name":1,"flow":"in"}])"})
        CHECK_FALSE(rejection("stream.ready", R"({"call":1,"streams":)" + std::string(streams) + "}").empty());
    for (const char* window : {"1", R"({"items":0})", R"({"bytes":-5})"})
        CHECK_FALSE(
            rejection("stream.ready", R"({"call":1,"streams":[],"window":)" + std::string(window) + "}").empty());
}

TEST_CASE("other methods are no words", "[streams]") {
    CHECK(streams::is_stream_message("stream.item"));
    CHECK_FALSE(streams::is_stream_message("stream.other"));
    CHECK_FALSE(streams::is_stream_message("item"));
}

TEST_CASE("a message counts as much as it has bytes", "[streams]") {
    CHECK(streams::message_bytes(100, 0) == 100);
    CHECK(streams::message_bytes(100, 4) == 128 + 4);
    CHECK(streams::message_bytes(56, 64) == 64 + 64);
}

TEST_CASE("An item with the same text as the item before has the same values", "[streams]") {
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

}  // namespace
}  // namespace shared_tensor::test
