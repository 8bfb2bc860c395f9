// The ends of a stream, with a call that writes down what they ask of it.

#include "streams/ends.hpp"

#include <catch2/catch_test_macros.hpp>
#include <deque>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

namespace shared_tensor::test {
namespace {

using json_rpc::Json;
using streams::Flow;
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
using Kind = StreamMessage::Kind;

constexpr Window kWindow{4, 1 << 20};

/// One end of a stream in a call.
template <class End>
struct Tested {
    explicit Tested(Window window = kWindow)
        : flow(Flow::make({"numbers", std::is_same_v<End, Source>}, std::is_same_v<End, Source>, window, kWindow)) {}
    Heard hear(Kind kind, Item item = {}) { return streams::hear(flow, {kind, 7, "numbers"}, std::move(item)); }

    const std::shared_ptr<ScriptedCall> call = std::make_shared<ScriptedCall>();
    const Flow flow;
    End end{call, flow};
};

Item item(Json value) { return {std::make_shared<const Json>(std::move(value)), {}, {}, 1}; }

TEST_CASE("the other side is told of taken items once the last of them is read, or could not be", "[streams]") {
    Tested<Source> reader, failing({1, 1});
    for (int i = 0; i < 2; ++i)
        reader.flow.in->add(item(i));
    CHECK(reader.end.next({}));
    CHECK(reader.end.next({}));
    CHECK(reader.call->log == Log{"read numbers[0]", "read numbers[1]", "stream.taken"});
    failing.flow.in->add(item(nullptr));
    CHECK_THROWS_AS(failing.end.next({}), std::invalid_argument);
    CHECK(failing.call->log == Log{"read numbers[0]", "stream.taken"});
}

TEST_CASE("a source that stops gives up what came and says so once, and nothing when its call is over", "[streams]") {
    Tested<Source> reader, over;
    reader.flow.in->add(item(1));
    reader.end.stop();
    reader.end.stop();
    CHECK(reader.call->log == Log{"give up 1", "stream.stop"});
    over.flow.close(false);
    CHECK_THROWS_AS(over.end.next({}), std::runtime_error);
    over.end.stop();
    CHECK(over.call->log.empty());
}

TEST_CASE("a sink sends until its reader stops, and ends once; when its call is over it throws the call's error",
          "[streams]") {
    Tested<Sink> writer, over;
    CHECK(writer.end.put({}));
    CHECK(writer.hear(Kind::stop).rejection.empty());
    CHECK_FALSE(writer.end.put({}));
    writer.end.end();
    writer.end.end();
    writer.end.leave(true);
    CHECK_THROWS_AS(writer.end.put({}), std::logic_error);
    CHECK(writer.call->log == Log{"send", "stream.end"});
    over.flow.close(false);
    CHECK_THROWS_AS(over.end.put({}), std::runtime_error);
    over.end.leave(false);
    CHECK(over.call->log == Log{"left"});
}

TEST_CASE("messages of the other end, of items that were not sent and behind the end break the rules", "[streams]") {
    Tested<Source> reader, closed;
    Tested<Sink> writer;
    for (const Kind kind : {Kind::item, Kind::end})
        CHECK_FALSE(writer.hear(kind, item(1)).rejection.empty());
    for (const Kind kind : {Kind::taken, Kind::stop})
        CHECK_FALSE(reader.hear(kind).rejection.empty());
    StreamMessage too_many{Kind::taken, 7, "numbers"};
    too_many.taken = 1;
    CHECK_FALSE(streams::hear(writer.flow, too_many, {}).rejection.empty());
    reader.hear(Kind::end);
    const Heard late = reader.hear(Kind::item, item(1));
    CHECK_FALSE(late.rejection.empty());
    CHECK_FALSE(late.item_kept);
    closed.flow.close(false);
    const Heard dropped = closed.hear(Kind::item, item(1));  // it was on its way
    CHECK(dropped.rejection.empty());
    CHECK_FALSE(dropped.item_kept);
}

TEST_CASE("the place of an item says where in it something is wrong", "[streams]") {
    const Flow flow = Tested<Source>().flow;
    CHECK(place_of(flow, 17, "") == "numbers[17]");
    CHECK(place_of(flow, 17, "label") == "numbers[17].label");
    CHECK(place_of(flow, 17, "[2]") == "numbers[17][2]");
}

}  // namespace
}  // namespace shared_tensor::test
