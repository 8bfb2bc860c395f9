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
    const auto reason = [](const std::string& method, const std::string& params, const std::string& more = "") {
        const auto got =
            read(R"({"jsonrpc":"2.0","method":"stream.)" + method + R"(","params":)" + params + more + "}");
        return std::holds_alternative<std::string>(got) ? std::get<std::string>(got) : std::string();
    };
    const auto of_x = [](const std::string& members) { return R"({"call":1,"stream":"x")" + members + "}"; };
    CHECK(reason("end", of_x("")).empty());
    CHECK_FALSE(reason("end", of_x(""), R"(,"id":1)").empty());
    for (const char* params : {"[1]", "{}", R"({"call":null,"stream":"x"})", R"({"call":[],"stream":"x"})",
                               R"({"call":1})", R"({"call":1,"stream":7})"})
        CHECK_FALSE(reason("end", params).empty());
    for (const char* members :
         {"", R"(,"value":1,"elsewhere_bytes":-1)", R"(,"value":1,"elsewhere_bytes":18446744073709551000)"})
        CHECK_FALSE(reason("item", of_x(members)).empty());
    for (const char* members : {"", R"(,"items":-1)", R"(,"items":1.5)", R"(,"items":"1")", R"(,"items":null)"})
        CHECK_FALSE(reason("taken", of_x(members)).empty());
    for (const char* members : {R"("streams":null)", R"("streams":{})", R"("streams":[1])",
                                R"("streams":[{"name":"x"}])", R"("streams":[{"name":"x","flow":"up"}])",
                                R"("streams":[{"name":1,"flow":"in"}])", R"("streams":[],"window":1)",
                                R"("streams":[],"window":{"items":0})", R"("streams":[],"window":{"bytes":-5})"})
        CHECK_FALSE(reason("ready", R"({"call":1,)" + std::string(members) + "}").empty());
    CHECK(streams::is_stream_message("stream.item"));
    CHECK_FALSE(streams::is_stream_message("stream.other"));
    CHECK_FALSE(streams::is_stream_message("item"));
}

TEST_CASE("a message counts as much as it has bytes", "[streams]") {
    CHECK(streams::message_bytes(100, 0) == 100);
    CHECK(streams::message_bytes(100, 4) == 128 + 4);
    CHECK(streams::message_bytes(56, 64) == 64 + 64);
}

TEST_CASE("An item with the same text as the item before has the same values, unless it is long", "[streams]") {
    LastItem last;
    CHECK(last.find("") == nullptr);
    last.keep("five", item(5));
    last.keep("end", StreamMessage{StreamMessage::Kind::end, 1});
    const std::string text(5'000, 'x');
    last.keep(text, item(6));
    for (const std::string& other : {std::string("end"), text, std::string("fiv"), std::string("five ")})
        CHECK(last.find(other) == nullptr);
    REQUIRE(last.find("five") != nullptr);
    CHECK(*last.find("five")->value == 5);
    CHECK(last.find("five")->stream == "items");
    last.keep("six", item(6));
    CHECK(last.find("five") == nullptr);
    CHECK(*last.find("six")->value == 6);
}

}  // namespace
}  // namespace shared_tensor::test
