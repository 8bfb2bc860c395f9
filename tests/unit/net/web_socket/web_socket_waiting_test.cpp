#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <thread>

#include "hand_stream.hpp"
#include "net/web_socket/web_socket_outbox.hpp"
#include "web_socket_peer.hpp"

namespace shared_tensor::test {
namespace {

using net::FrameType;
using net::WebSocketOutbox;

TEST_CASE("who waits for its message to be taken does so until its last byte was", "[http]") {
    HandStream stream;
    stream.room = 5;
    WebSocketOutbox outbox(stream, false, [] {});
    const auto end = outbox.add(FrameType::binary, {part_of("hello")});
    REQUIRE(end);
    outbox.add(FrameType::binary, {part_of("behind it")});
    std::atomic<bool> taken{false};
    std::jthread waits([&] { taken = outbox.wait_taken(*end); });
    stream.room = 1;
    outbox.write(true);
    CHECK_FALSE(taken);
    stream.room = 1;
    outbox.write(true);
    waits.join();
    CHECK(taken);
    CHECK(outbox.unsent() > 0);
}

TEST_CASE("who waits for its message to be taken hears that it never will be", "[http]") {
    HandStream stream;
    WebSocketOutbox outbox(stream, false, [] {});
    const auto end = outbox.add(FrameType::binary, {part_of("hello")});
    REQUIRE(end);
    std::atomic<int> heard{0};
    std::vector<std::jthread> waiting;
    for (int i = 0; i < 3; ++i) {
        waiting.emplace_back([&] {
            if (!outbox.wait_taken(*end)) ++heard;
        });
    }
    outbox.drop();
    waiting.clear();
    CHECK(heard == 3);
}

/// Its memory may be gone the moment that it returns.
TEST_CASE("who waits for its message does not return while another thread still reads it", "[http]") {
    HandStream stream;
    stream.room = 1 << 20;
    Event in_first, first, in_second, second;
    std::atomic<int> writes{0};
    std::atomic<bool> returned{false}, too_early{false};
    stream.before_write = [&] {
        if (writes++ == 0) {
            in_first.set();
            first.wait();
        } else {
            in_second.set();
            second.wait();
            too_early = returned.load();
        }
    };
    WebSocketOutbox outbox(stream, false, [] {});
    std::jthread writer([&] { outbox.add(FrameType::binary, {part_of("first")}); });
    REQUIRE(in_first.wait());
    const auto end = outbox.add(FrameType::binary, {part_of("second")});
    REQUIRE(end);
    std::jthread waits([&] {
        outbox.wait_taken(*end);
        returned = true;
    });
    first.set();
    REQUIRE(in_second.wait());
    outbox.drop();
    std::jthread later([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        second.set();
    });
    waits.join();
    writer.join();
    CHECK_FALSE(too_early);
}

}  // namespace
}  // namespace shared_tensor::test
