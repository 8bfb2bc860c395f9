#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <map>
#include <thread>

#include "net/web_socket/web_socket.hpp"
#include "web_socket_peer.hpp"

namespace shared_tensor::test {
namespace {

using net::CloseCode;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

net::WebSocketLimits patient_limits() {
    net::WebSocketLimits limits;
    limits.idle = limits.stall = milliseconds(600'000);
    return limits;
}

/// "thread 3 message 17" and then so many bytes that follow from both.
std::string message_of(int thread, int number) {
    const auto size = static_cast<std::size_t>((thread * 7919 + number * 104'729) % 3000);
    return std::to_string(thread) + ' ' + std::to_string(number) + ' ' +
           std::string(size, static_cast<char>('a' + thread));
}

TEST_CASE("messages that many threads send at once stay whole and in each thread's order", "[http]") {
    constexpr int kThreads = 8, kMessages = 300;
    WebSocketServer server;
    RawWebSocket client(server.port());
    const auto socket = server.socket();
    std::vector<std::jthread> threads;
    for (int t = 0; t < kThreads; ++t) {
        threads.emplace_back([&socket, t] {
            for (int i = 0; i < kMessages; ++i)
                socket->send(i % 2 == 0, {part_of(message_of(t, i))});
        });
    }
    std::map<int, int> next;
    for (int i = 0; i < kThreads * kMessages; ++i) {
        const auto message = client.read_frame();
        const int thread = std::atoi(message.payload.c_str());
        const int number = next[thread]++;
        REQUIRE(message.payload == message_of(thread, number));
        REQUIRE(message.opcode == (number % 2 == 0 ? kBinary : kText));
    }
    CHECK(eventually([&] { return socket->unsent() == 0; }));
}

TEST_CASE("a message in many parts is one frame of all of them", "[http]") {
    WebSocketServer server;
    RawWebSocket client(server.port());
    std::vector<net::BodyPart> parts;
    std::string whole;
    for (std::size_t i = 0; i < 200; ++i) {
        const std::string piece = random_bytes(i % 5 == 0 ? 0 : i * 50);
        parts.push_back(part_of(piece));
        whole += piece;
    }
    server.socket()->send(true, parts);
    const auto message = client.read_frame();
    CHECK(message.last);
    CHECK((message.payload == whole));
}

TEST_CASE("what is sent is written from where it lies and let go once it is written", "[http]") {
    WebSocketServer server;
    RawWebSocket client(server.port());
    const auto bytes = std::make_shared<const std::string>(random_bytes(1 << 20));
    server.socket()->send(true, {{std::as_bytes(std::span(*bytes)), bytes}});
    CHECK((client.read_message().payload == *bytes));
    CHECK(eventually([&] { return bytes.use_count() == 1; }));
}

TEST_CASE("send never waits for a peer that takes nothing and counts what it has not taken", "[http]") {
    WebSocketServer server(patient_limits());
    RawWebSocket client(server.port());
    const auto socket = server.socket();
    const auto bytes = std::make_shared<const std::string>(1 << 20, 'x');
    constexpr std::size_t kMessages = 256;
    const auto start = steady_clock::now();
    for (std::size_t i = 0; i < kMessages; ++i) {
        const std::uint64_t before = socket->unsent();
        REQUIRE(socket->send(true, {{std::as_bytes(std::span(*bytes)), bytes}}));
        if (i >= kMessages / 2) REQUIRE(socket->unsent() == before + bytes->size() + 10);
    }
    CHECK(steady_clock::now() - start < std::chrono::seconds(5));
    CHECK(socket->unsent() + socket->bytes_out() == kMessages * (bytes->size() + 10));
    socket->abort();
    server.end();
}

TEST_CASE("what was not taken is let go at the end", "[http]") {
    WebSocketServer server(patient_limits());
    RawWebSocket client(server.port());
    const auto socket = server.socket();
    const auto bytes = std::make_shared<const std::string>(1 << 20, 'x');
    for (int i = 0; i < 64; ++i)
        REQUIRE(socket->send(true, {{std::as_bytes(std::span(*bytes)), bytes}}));
    CHECK(bytes.use_count() > 1);
    client.reset();
    server.end();
    CHECK(eventually([&] { return bytes.use_count() == 1; }));
}

TEST_CASE("nothing can be sent after the end", "[http]") {
    for (const bool by_peer : {false, true}) {
        WebSocketServer server;
        RawWebSocket client(server.port());
        const auto socket = server.socket();
        if (by_peer) {
            client.send(raw_close(1000));
            server.end();
        } else {
            socket->close(CloseCode::normal, "");
        }
        CHECK_FALSE(socket->send(false, {part_of("late")}));
    }
}

TEST_CASE("a message that is rejected does not count as unsent", "[http]") {
    WebSocketServer server;
    RawWebSocket client(server.port());
    const auto socket = server.socket();
    client.send(raw_close(1000));
    server.end();
    const auto before = socket->unsent();
    for (int i = 0; i < 3; ++i)
        CHECK_FALSE(socket->send(true, {part_of(std::string(1000, 'x'))}));
    socket->close(CloseCode::normal, "once more");
    CHECK(socket->unsent() == before);
}

TEST_CASE("threads that send while the WebSocket ends all hear of it", "[http]") {
    for (int round = 0; round < 20; ++round) {
        WebSocketServer server;
        RawWebSocket client(server.port());
        const auto socket = server.socket();
        std::atomic<int> heard{0};
        std::vector<std::jthread> threads;
        for (int t = 0; t < 4; ++t) {
            threads.emplace_back([&] {
                const auto until = patience();
                while (socket->send(false, {part_of("again")})) {
                    if (steady_clock::now() > until) return;
                }
                ++heard;
            });
        }
        REQUIRE(client.read_message().payload == "again");
        round % 2 == 0 ? client.close() : client.reset();
        threads.clear();
        CHECK(heard == 4);
    }
}

TEST_CASE("a peer's close is answered although threads go on sending", "[http]") {
    for (int round = 0; round < 50; ++round) {
        WebSocketServer server;
        RawWebSocket client(server.port());
        const auto socket = server.socket();
        std::vector<std::jthread> threads;
        for (int t = 0; t < 2; ++t) {
            threads.emplace_back([&] {
                const auto until = patience();
                while (socket->send(true, {part_of(std::string(70'000, 'x'))}) && steady_clock::now() < until) {
                    while (socket->unsent() > 1'000'000 && steady_clock::now() < until)
                        std::this_thread::yield();
                }
            });
        }
        for (int i = 0; i < 5; ++i)
            REQUIRE(client.read_frame().opcode == kBinary);
        client.send(raw_close(4000));
        REQUIRE(client.read_close_code() == 4000);
    }
}

TEST_CASE("our close comes behind all that every thread sent before", "[http]") {
    constexpr int kThreads = 4, kMessages = 100;
    WebSocketServer server;
    RawWebSocket client(server.port());
    const auto socket = server.socket();
    std::atomic<int> sent{0};
    std::vector<std::jthread> threads;
    for (int t = 0; t < kThreads; ++t) {
        threads.emplace_back([&] {
            for (int i = 0; i < kMessages; ++i) {
                if (socket->send(true, {part_of(std::string(10'000, 'x'))})) ++sent;
            }
        });
    }
    threads.clear();
    socket->close(CloseCode::normal, "");
    int got = 0;
    while (client.read_frame().opcode == kBinary)
        ++got;
    CHECK(sent == kThreads * kMessages);
    CHECK(got == kThreads * kMessages);
}

}  // namespace
}  // namespace shared_tensor::test
