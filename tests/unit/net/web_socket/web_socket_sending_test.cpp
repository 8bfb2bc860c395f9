#include <algorithm>
#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <map>
#include <set>
#include <thread>

#include "web_socket_peer.hpp"

namespace shared_tensor::test {
namespace {

using net::CloseCode;
using std::chrono::steady_clock;

/// "3 17 " and then so many bytes that follow from both.
std::string message_of(int thread, int number) {
    const auto size = static_cast<std::size_t>((thread * 7919 + number * 104'729) % 3000);
    return std::to_string(thread) + ' ' + std::to_string(number) + ' ' +
           std::string(size, static_cast<char>('a' + thread));
}

TEST_CASE("messages that many threads send stay whole and in each thread's order, with the close behind all",
          "[http]") {
    constexpr int kThreads = 8, kMessages = 300;
    Duo duo(any_of_ours());
    net::WebSocket& socket = duo.socket();
    std::vector<std::jthread> threads;
    for (int t = 0; t < kThreads; ++t) {
        threads.emplace_back([&socket, t] {
            for (int i = 0; i < kMessages; ++i)
                socket.send(i % 2 == 0, {part_of(message_of(t, i))});
        });
    }
    std::map<int, int> next;
    for (int i = 0; i < kThreads * kMessages / 2; ++i) {
        const auto message = duo.read_frame();
        const int thread = std::atoi(message.payload.c_str());
        const int number = next[thread]++;
        REQUIRE(message.payload == message_of(thread, number));
        REQUIRE(message.opcode == (number % 2 == 0 ? kBinary : kText));
    }
    threads.clear();
    socket.close(CloseCode::normal, "");
    int rest = 0;
    while (duo.read_frame().opcode <= kBinary && rest <= kThreads * kMessages)
        ++rest;
    CHECK(rest == kThreads * kMessages / 2);
    CHECK(eventually([&] { return socket.unsent() == 0; }));
}

TEST_CASE("a message in many parts is one frame of all of them, however the peer takes it", "[http]") {
    Duo duo(any_of_ours());
    std::vector<net::BodyPart> parts;
    std::string whole;
    std::vector<std::size_t> sizes = {1, 300'001, 0, 7, 262'144, 5'000'003};
    for (std::size_t i = 0; i < 200; ++i)
        sizes.push_back(i % 5 == 0 ? 0 : i * 50);
    for (const std::size_t size : sizes) {
        parts.push_back(part_of(random_bytes(size)));
        whole += random_bytes(size);
    }
    duo.socket().send(true, parts);
    const auto message = duo.read_frame();
    CHECK(message.last);
    CHECK((message.payload == whole));
}

TEST_CASE("a client never masks two frames with the same bytes", "[http]") {
    Duo duo({false, false});
    std::set<std::string> masks;
    for (int i = 0; i < 100; ++i) {
        duo.socket().send(false, {part_of("hello")});
        masks.insert(duo.peer().read_bytes(11).substr(2, 4));
    }
    CHECK(masks.size() > 95);  // random ones may meet, though hardly ever
}

TEST_CASE("send never waits for a peer that takes nothing, and lets go what was taken or never will be", "[http]") {
    const bool is_server = GENERATE(true, false);
    Duo duo({is_server, false}, patient_limits());
    net::WebSocket& socket = duo.socket();
    const auto bytes = std::make_shared<const std::string>(1 << 20, 'x');
    const std::size_t frame = bytes->size() + (is_server ? 10 : 14);
    const auto send = [&] { return socket.send(true, {{std::as_bytes(std::span(*bytes)), bytes}}); };
    send();
    CHECK((duo.read_message().payload == *bytes));
    CHECK(eventually([&] { return bytes.use_count() == 1; }));
    constexpr std::size_t kMessages = 256;
    const auto start = steady_clock::now();
    for (std::size_t i = 0; i < kMessages; ++i) {
        const std::uint64_t before = socket.unsent();
        REQUIRE(send());
        if (i >= kMessages / 2) REQUIRE(socket.unsent() <= before + frame);
    }
    CHECK(steady_clock::now() - start < std::chrono::seconds(9));
    CHECK(socket.unsent() > kMessages / 2 * frame);
    CHECK(eventually([&] { return socket.unsent() + socket.bytes_out() == (kMessages + 1) * frame; }));
    const std::string small(1000, 'x');  // is copied, so it need not wait
    for (int i = 0; i < 1000; ++i)
        REQUIRE(socket.send_from("", {{std::as_bytes(std::span(small)), nullptr}}));
    CHECK(bytes.use_count() > 1);
    duo.peer().reset();
    duo.end();
    CHECK(eventually([&] { return bytes.use_count() == 1; }));
}

TEST_CASE("nothing can be sent after the end, nor does it count as unsent", "[http]") {
    Duo duo(any_of_ours());
    duo.send(raw_close(1000));
    duo.end();
    const auto before = duo.socket().unsent();
    for (int i = 0; i < 3; ++i)
        CHECK_FALSE(duo.socket().send(true, {part_of(std::string(1000, 'x'))}));
    duo.socket().close(CloseCode::normal, "once more");
    CHECK(duo.socket().unsent() == before);
}

TEST_CASE("threads that send while the WebSocket ends all hear of it", "[http]") {
    for (int round = 0; round < 20; ++round) {
        Duo duo({round % 4 < 2, false});
        std::atomic<int> heard{0};
        std::vector<std::jthread> threads;
        for (int t = 0; t < 4; ++t) {
            threads.emplace_back([&] {
                const auto until = patience();
                while (duo.socket().send(false, {part_of("again")})) {
                    if (steady_clock::now() > until) return;
                }
                ++heard;
            });
        }
        REQUIRE(duo.read_message().payload == "again");
        round % 2 == 0 ? duo.peer().close() : duo.peer().reset();
        threads.clear();
        CHECK(heard == 4);
    }
}

TEST_CASE("a peer's close is answered although threads go on sending", "[http]") {
    for (int round = 0; round < 50; ++round) {
        Duo duo({round % 2 == 0, false});
        net::WebSocket& socket = duo.socket();
        std::vector<std::jthread> threads;
        for (int t = 0; t < 2; ++t) {
            threads.emplace_back([&] {
                const auto until = patience();
                while (socket.send(true, {part_of(std::string(70'000, 'x'))}) && steady_clock::now() < until) {
                    while (socket.unsent() > 1'000'000 && steady_clock::now() < until)
                        std::this_thread::yield();
                }
            });
        }
        for (int i = 0; i < 5; ++i)
            REQUIRE(duo.read_frame().opcode == kBinary);
        duo.send(raw_close(4000));
        REQUIRE(duo.read_close_code() == 4000);
    }
}

// Memory that is sent from, and may change afterwards.

TEST_CASE("memory that is sent from may change as soon as the call returns", "[http]") {
    Duo duo(any_of_ours(), patient_limits());
    net::WebSocket& socket = duo.socket();
    for (const std::size_t size : {0, 1, 1000, 60'000, 70'000, 3'000'000}) {
        INFO(size);
        std::string memory = random_bytes(size);
        const std::string as_sent = memory;
        std::atomic<bool> sent{false};
        std::jthread sends([&] {
            sent = socket.send_from("head", {{std::as_bytes(std::span(memory)), nullptr}});
            std::fill(memory.begin(), memory.end(), '!');
        });
        const auto message = duo.read_frame();
        sends.join();
        CHECK(sent);
        CHECK(message.opcode == kBinary);
        CHECK((message.payload == "head" + as_sent));
    }
}

TEST_CASE("who sends from much memory waits for a peer that takes nothing and hears of the end", "[http]") {
    Duo duo({GENERATE(true, false), false}, patient_limits());
    const std::string memory(32 << 20, 'x');
    Event returned;
    std::atomic<int> heard{0};
    std::vector<std::jthread> threads;
    for (int i = 0; i < 3; ++i) {
        threads.emplace_back([&] {
            if (!duo.socket().send_from("", {{std::as_bytes(std::span(memory)), nullptr}})) ++heard;
            returned.set();
        });
    }
    REQUIRE(eventually([&] { return duo.socket().bytes_out() > 0; }));
    CHECK(returned.count() == 0);
    duo.peer().reset();
    REQUIRE(returned.wait(3));
    CHECK(heard == 3);
}

}  // namespace
}  // namespace shared_tensor::test
