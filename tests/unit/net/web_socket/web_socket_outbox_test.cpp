#include "net/web_socket/web_socket_outbox.hpp"

#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <thread>

#include "web_socket_peer.hpp"

namespace shared_tensor::test {
namespace {

using net::FrameType;
using net::WebSocketOutbox;

/// Takes all, and keeps it.
class HandStream final : public net::Stream {
public:
    HandStream() : Stream(ProcessFd()) {}
    std::string taken;
    std::function<void()> before_write;

    net::StreamResult write(std::span<const iovec> parts) override {
        if (before_write) before_write();
        const std::size_t before = taken.size();
        for (const iovec& part : parts)
            taken.append(static_cast<const char*>(part.iov_base), part.iov_len);
        return {net::StreamStatus::ok, taken.size() - before};
    }
    net::StreamResult read(void*, std::size_t, Wait) override { return {net::StreamStatus::again}; }
};

/// As a server sends it.
std::string frame(const std::string& payload) { return RawFrame{kBinary, payload, true, false}.bytes(); }

TEST_CASE("messages close together call the running thread once and lose nothing", "[http]") {
    HandStream stream;
    std::atomic<int> calls{0};
    WebSocketOutbox outbox(stream, false, [&] { ++calls; });
    constexpr std::chrono::microseconds kClose{50};  // as the outbox has it
    int pauses = 0;                                  // this thread did not run: the next message is not close
    std::string expected;
    auto before = real_clock().now();
    for (int i = 0; i < 1000; ++i) {
        const std::string text = std::to_string(i);
        expected += frame(text);
        const auto start = real_clock().now();
        outbox.add(FrameType::binary, {part_of(text)});
        pauses += real_clock().now() - before >= kClose ? 1 : 0;
        before = start;
    }
    const int called = calls;
    outbox.write(false);
    CAPTURE(pauses);
    CHECK(called <= 1 + pauses);
    CHECK(stream.taken == expected);
}

TEST_CASE("a message that may answer what came is written at once, however close to the one before", "[http]") {
    HandStream stream;
    int calls = 0;
    WebSocketOutbox outbox(stream, false, [&] { ++calls; });
    for (int i = 0; i < 1000; ++i) {
        outbox.note_received();
        outbox.add(FrameType::text, {part_of(std::to_string(i))});
        REQUIRE(outbox.unsent() == 0);
    }
    CHECK(calls == 0);
}

/// Its memory may be gone the moment that it returns.
TEST_CASE("who waits for its message does not return while another thread still reads it", "[http]") {
    HandStream stream;
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
