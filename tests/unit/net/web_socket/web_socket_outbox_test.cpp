#include "net/web_socket/web_socket_outbox.hpp"

#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <thread>

#include "hand_stream.hpp"
#include "web_socket_peer.hpp"

namespace shared_tensor::test {
namespace {

using net::CloseCode;
using net::FrameType;
using net::WebSocketOutbox;

struct Frames {
    std::vector<RawFrame> whole;
    bool rest = false;  ///< there are bytes behind them
};

/// Those of at most 125 bytes.
Frames frames_in(const std::string& bytes) {
    Frames frames;
    std::string_view left = bytes;
    while (left.size() >= 2) {
        const auto second = static_cast<unsigned char>(left[1]);
        const std::size_t head = 2 + ((second & 0x80) != 0 ? 4 : 0);
        const std::size_t size = second & 0x7f;
        if (size > 125 || left.size() < head + size) break;
        RawFrame frame{left[0] & 15, std::string(left.substr(head, size)), true, (second & 0x80) != 0};
        for (std::size_t i = 0; frame.masked && i < size; ++i)
            frame.payload[i] = static_cast<char>(frame.payload[i] ^ left[2 + i % 4]);
        frames.whole.push_back(std::move(frame));
        left.remove_prefix(head + size);
    }
    frames.rest = !left.empty();
    return frames;
}

TEST_CASE("frames are right however few bytes the wire takes at once", "[http]") {
    for (const bool masks : {false, true}) {
        for (const std::size_t at_once : {1, 2, 3, 5, 7, 100}) {
            INFO(at_once << " bytes, masked: " << masks);
            HandStream stream;
            stream.at_once = at_once;
            WebSocketOutbox outbox(stream, masks, [] {});
            std::vector<std::string> sent;
            for (std::size_t i = 0; i < 50; ++i) {
                sent.push_back(random_bytes(i));
                REQUIRE(outbox.add(FrameType::binary,
                                   {part_of(sent.back().substr(0, i / 3)), part_of(sent.back().substr(i / 3))}));
            }
            for (int i = 0; i < 10'000 && outbox.unsent() > 0; ++i) {
                stream.room += 11;
                outbox.write(true);
            }
            const auto frames = frames_in(stream.taken);
            REQUIRE(frames.whole.size() == sent.size());
            CHECK_FALSE(frames.rest);
            for (std::size_t i = 0; i < sent.size(); ++i) {
                CHECK(frames.whole[i].masked == masks);
                CHECK(frames.whole[i].payload == sent[i]);
            }
        }
    }
}

TEST_CASE("a message is written by whoever adds it", "[http]") {
    HandStream stream;
    stream.room = 1000;
    WebSocketOutbox outbox(stream, false, [] {});
    outbox.add(FrameType::text, {part_of("at once")});
    CHECK(frames_in(stream.taken).whole.size() == 1);
    CHECK(outbox.unsent() == 0);
}

TEST_CASE("the running thread is called when the wire takes no more", "[http]") {
    HandStream stream;
    stream.room = 3;
    int calls = 0;
    WebSocketOutbox outbox(stream, false, [&] { ++calls; });
    outbox.add(FrameType::text, {part_of("hello")});
    CHECK(calls == 1);
    CHECK(outbox.state().waits_for_peer);
    CHECK(outbox.unsent() == 4);
    stream.room = 100;
    outbox.write(false);  // it was not told of room
    CHECK(outbox.unsent() == 4);
    outbox.write(true);
    CHECK(outbox.unsent() == 0);
    CHECK_FALSE(outbox.state().waits_for_peer);
}

TEST_CASE("messages close together call the running thread once and lose nothing", "[http]") {
    HandStream stream;
    stream.room = 1 << 20;
    std::atomic<int> calls{0};
    WebSocketOutbox outbox(stream, false, [&] { ++calls; });
    constexpr std::chrono::microseconds kClose{50};  // as the outbox has it
    int pauses = 0;                                  // this thread did not run: the next message is not close
    auto before = real_clock().now();
    for (int i = 0; i < 1000; ++i) {
        const auto start = real_clock().now();
        outbox.add(FrameType::text, {part_of(std::to_string(i))});
        pauses += real_clock().now() - before >= kClose ? 1 : 0;
        before = start;
    }
    const int called = calls;
    outbox.write(false);
    CAPTURE(pauses);
    CHECK(called <= 1 + pauses);
    const auto frames = frames_in(stream.taken);
    REQUIRE(frames.whole.size() == 1000);
    for (int i = 0; i < 1000; ++i)
        REQUIRE(frames.whole[static_cast<std::size_t>(i)].payload == std::to_string(i));
}

TEST_CASE("a message that may answer what came is written at once, however close to the one before", "[http]") {
    HandStream stream;
    stream.room = 1 << 20;
    int calls = 0;
    WebSocketOutbox outbox(stream, false, [&] { ++calls; });
    for (int i = 0; i < 1000; ++i) {
        outbox.note_received();
        outbox.add(FrameType::text, {part_of(std::to_string(i))});
        REQUIRE(outbox.unsent() == 0);
    }
    CHECK(calls == 0);
    CHECK(frames_in(stream.taken).whole.size() == 1000);
}

TEST_CASE("a wire that is broken is told of and takes nothing more", "[http]") {
    HandStream stream;
    stream.broken = true;
    int calls = 0;
    WebSocketOutbox outbox(stream, false, [&] { ++calls; });
    outbox.add(FrameType::text, {part_of("hello")});
    CHECK(outbox.state().broken);
    CHECK(calls == 1);
    stream.broken = false;
    stream.room = 100;
    outbox.write(true);
    CHECK(stream.taken.empty());
}

TEST_CASE("nothing is added behind the close frame", "[http]") {
    HandStream stream;
    stream.room = 100;
    WebSocketOutbox outbox(stream, false, [] {});
    CHECK(outbox.close(CloseCode::normal, "bye"));
    CHECK_FALSE(outbox.close(CloseCode::normal, "again"));
    CHECK_FALSE(outbox.add(FrameType::text, {part_of("late")}));
    outbox.write(false);
    const auto frames = frames_in(stream.taken);
    REQUIRE(frames.whole.size() == 1);
    CHECK(frames.whole.front().code() == 1000);
    CHECK(outbox.unsent() == 0);
}

TEST_CASE("what is dropped is let go and never written", "[http]") {
    HandStream stream;
    const auto kept = std::make_shared<const std::string>("hello");
    WebSocketOutbox outbox(stream, false, [] {});
    outbox.add(FrameType::text, {{std::as_bytes(std::span(*kept)), kept}});
    outbox.drop();
    CHECK(kept.use_count() == 1);
    stream.room = 100;
    outbox.write(true);
    CHECK(stream.taken.empty());
    CHECK_FALSE(outbox.add(FrameType::text, {part_of("late")}));
}

}  // namespace
}  // namespace shared_tensor::test
