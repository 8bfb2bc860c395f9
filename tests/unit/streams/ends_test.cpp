// The ends of a stream, with a call that writes down what they ask of it.

#include "streams/ends.hpp"

#include <catch2/catch_test_macros.hpp>
#include <deque>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace shared_tensor::test {
namespace {

using json_rpc::Json;
using streams::Flow;
using streams::hear;
using streams::Heard;
using streams::Item;
using streams::place_of;
using streams::Sink;
using streams::Source;
using streams::StreamMessage;
using streams::Window;

struct ScriptedCall final : streams::Call {
    const Json& id() const override { return id_; }
    std::shared_ptr<net::WebSocket> socket() const override { return nullptr; }
    void check() const override { throw std::runtime_error("the call is over"); }
    void say(std::string json) override { log.push_back(Json::parse(json)["method"].get<std::string>()); }
    void abandon() noexcept override { log.emplace_back("abandon"); }
    void read(const Flow& flow, Item item, const Read&) override {
        log.push_back("read " + place_of(flow, item.number, ""));
        if (item.value->is_null()) throw std::invalid_argument("no number");
    }
    void send(const Flow& flow, std::string, const Write&) override {
        flow.out->sent(1);
        log.emplace_back("send");
    }
    void abandon(const std::deque<Item>& items) noexcept override {
        if (!items.empty()) log.push_back("give up " + std::to_string(items.size()));
    }
    void leave(const Flow&, bool thrown) noexcept override { log.emplace_back(thrown ? "thrown" : "left"); }

    const Json id_ = 7;
    std::vector<std::string> log;
};

using Log = std::vector<std::string>;

constexpr Window kWindow{4, 1 << 20};

Flow reading() { return Flow::make({"numbers", true}, true, kWindow, kWindow); }
Flow writing() { return Flow::make({"numbers", false}, false, kWindow, kWindow); }
Item item(Json value) { return {std::make_shared<const Json>(std::move(value)), {}, {}, 1}; }
StreamMessage word(StreamMessage::Kind kind) { return {kind, 7, "numbers"}; }

TEST_CASE("the other side is told of taken items once the last of them is read", "[streams]") {
    const auto call = std::make_shared<ScriptedCall>();
    const Flow flow = reading();
    Source source(call, flow);
    for (int i = 0; i < 2; ++i)
        flow.in->add(item(i));
    CHECK(source.next({}));
    CHECK(source.next({}));
    CHECK(call->log == Log{"read numbers[0]", "read numbers[1]", "stream.taken"});
}

TEST_CASE("the other side is told of an item that could not be read", "[streams]") {
    const auto call = std::make_shared<ScriptedCall>();
    const Flow flow = Flow::make({"numbers", true}, true, {1, 1}, {});
    Source source(call, flow);
    flow.in->add(item(nullptr));
    CHECK_THROWS_AS(source.next({}), std::invalid_argument);
    CHECK(call->log == Log{"read numbers[0]", "stream.taken"});
}

TEST_CASE("a source that stops gives up what came and says so once", "[streams]") {
    const auto call = std::make_shared<ScriptedCall>();
    const Flow flow = reading();
    Source source(call, flow);
    flow.in->add(item(1));
    source.stop();
    source.stop();
    CHECK(call->log == Log{"give up 1", "stream.stop"});
}

TEST_CASE("a source of a call that is over says nothing when it stops, and its next item is the call's error",
          "[streams]") {
    const auto call = std::make_shared<ScriptedCall>();
    const Flow flow = reading();
    Source source(call, flow);
    flow.close(false);
    CHECK_THROWS_AS(source.next({}), std::runtime_error);
    source.stop();
    CHECK(call->log.empty());
}

TEST_CASE("a sink sends until its reader stops, and ends once", "[streams]") {
    const auto call = std::make_shared<ScriptedCall>();
    const Flow flow = writing();
    Sink sink(call, flow);
    CHECK(sink.put({}));
    CHECK(hear(flow, word(StreamMessage::Kind::stop), {}).rejection.empty());
    CHECK_FALSE(sink.put({}));
    sink.end();
    sink.end();
    sink.leave(true);
    CHECK_THROWS_AS(sink.put({}), std::logic_error);
    CHECK(call->log == Log{"send", "stream.end"});
}

TEST_CASE("a sink of a call that is over throws the call's error", "[streams]") {
    const auto call = std::make_shared<ScriptedCall>();
    const Flow flow = writing();
    Sink sink(call, flow);
    flow.close(false);
    CHECK_THROWS_AS(sink.put({}), std::runtime_error);
    sink.leave(false);
    CHECK(call->log == Log{"left"});
}

TEST_CASE("messages that belong to the other end of a stream break the rules", "[streams]") {
    using Kind = StreamMessage::Kind;
    for (const Kind kind : {Kind::item, Kind::end})
        CHECK_FALSE(hear(writing(), word(kind), item(1)).rejection.empty());
    for (const Kind kind : {Kind::taken, Kind::stop})
        CHECK_FALSE(hear(reading(), word(kind), {}).rejection.empty());
    StreamMessage too_many = word(Kind::taken);
    too_many.taken = 1;
    CHECK_FALSE(hear(writing(), too_many, {}).rejection.empty());
}

TEST_CASE("an item behind the end breaks the rules, and one for a closed stream is dropped", "[streams]") {
    const Flow ended = reading();
    hear(ended, word(StreamMessage::Kind::end), {});
    const Heard late = hear(ended, word(StreamMessage::Kind::item), item(1));
    CHECK_FALSE(late.rejection.empty());
    CHECK_FALSE(late.item_kept);
    const Flow closed = reading();
    closed.close(false);
    const Heard dropped = hear(closed, word(StreamMessage::Kind::item), item(1));
    CHECK(dropped.rejection.empty());
    CHECK_FALSE(dropped.item_kept);
}

TEST_CASE("the place of an item says where in it something is wrong", "[streams]") {
    CHECK(place_of(reading(), 17, "") == "numbers[17]");
    CHECK(place_of(reading(), 17, "label") == "numbers[17].label");
    CHECK(place_of(reading(), 17, "[2]") == "numbers[17][2]");
}

}  // namespace
}  // namespace shared_tensor::test
