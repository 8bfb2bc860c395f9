#include <catch2/catch_test_macros.hpp>

#include "net/web_socket/web_socket.hpp"
#include "web_socket_peer.hpp"

namespace shared_tensor::test {
namespace {

using net::CloseCode;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kSoon{200};

constexpr milliseconds kNever{600'000};

/// No limit can be the one that a test did not mean.
net::WebSocketLimits patient_limits() {
    net::WebSocketLimits limits;
    limits.idle = limits.stall = kNever;
    limits.min_bytes_per_second = 0;
    return limits;
}

net::WebSocketLimits limits_of(milliseconds net::WebSocketLimits::*which) {
    auto limits = patient_limits();
    limits.*which = kSoon;
    return limits;
}

TEST_CASE("a message that is not gone on with is rejected", "[http]") {
    const std::vector<std::string> starts = {
        RawFrame{kBinary, std::string(100, 'x')}.bytes().substr(0, 50),
        RawFrame{kBinary, std::string(100'000, 'x')}.bytes().substr(0, 50'000),
        RawFrame{kText, "fragment", false}.bytes(),
        raw_head(0x82, 100),
    };
    for (const auto& bytes : starts) {
        WebSocketServer server(limits_of(&net::WebSocketLimits::stall));
        RawWebSocket client(server.port());
        client.send(bytes);
        CHECK(client.read_close_code() == 1008);
        CHECK(client.is_closed());
    }
}

TEST_CASE("pings do not stand for going on with a message", "[http]") {
    WebSocketServer server(limits_of(&net::WebSocketLimits::stall));
    RawWebSocket client(server.port());
    client.send_frame({kText, "fragment", false});
    int code = 0;
    const auto until = patience();
    while (code == 0 && steady_clock::now() < until) {
        client.send_frame({kPing});
        const auto frame = client.read_frame();
        REQUIRE((frame.opcode == kPong || frame.opcode == kClose));
        code = frame.code();
    }
    CHECK(code == 1008);
}

TEST_CASE("a message that trickles below the least rate is rejected", "[http]") {
    auto limits = patient_limits();
    limits.stall = milliseconds(100);
    limits.min_bytes_per_second = 1'000'000;
    WebSocketServer server(limits);
    RawWebSocket client(server.port());
    client.send(raw_head(0x82, 1'000'000));
    std::jthread trickle([&](const std::stop_token& stop) {
        while (!stop.stop_requested() && client.send("x"))
            std::this_thread::sleep_for(milliseconds(5));
    });
    CHECK(client.read_close_code() == 1008);
}

TEST_CASE("a message may stall for less than the limit as often as it likes", "[http]") {
    auto limits = patient_limits();
    limits.stall = milliseconds(500);
    WebSocketServer server(limits);
    RawWebSocket client(server.port());
    const auto start = steady_clock::now();
    int pieces = 0;
    for (; steady_clock::now() - start < milliseconds(800); ++pieces) {
        client.send_frame({pieces == 0 ? kText : kContinuation, "x", false});
        std::this_thread::sleep_for(milliseconds(20));
    }
    client.send_frame({kContinuation, "", true});
    CHECK(client.read_message().payload == std::string(static_cast<std::size_t>(pieces), 'x'));
}

TEST_CASE("a silent peer is sent a ping and then cut", "[http]") {
    WebSocketServer server(limits_of(&net::WebSocketLimits::idle));
    const auto start = steady_clock::now();
    RawWebSocket client(server.port());
    const auto ping = client.read_frame();
    CHECK(ping.opcode == kPing);
    CHECK(steady_clock::now() - start >= kSoon / 2);
    CHECK(client.read_frame().opcode == -1);
    CHECK(steady_clock::now() - start >= kSoon);
    CHECK(server.end().code == CloseCode::abnormal);
}

TEST_CASE("a peer that is silent in the middle of a head is cut", "[http]") {
    WebSocketServer server(limits_of(&net::WebSocketLimits::idle));
    RawWebSocket client(server.port());
    client.send("\x82");
    CHECK(client.read_frame().opcode == kPing);
    CHECK(client.read_frame().opcode == -1);
}

TEST_CASE("a peer that answers pings is kept for as long as it does", "[http]") {
    WebSocketServer server(limits_of(&net::WebSocketLimits::idle));
    RawWebSocket client(server.port());
    for (int i = 0; i < 4; ++i) {
        const auto ping = client.read_frame();
        REQUIRE(ping.opcode == kPing);
        client.send_frame({kPong, ping.payload});
    }
    client.send_frame({kText, "still here"});
    CHECK(client.read_message().payload == "still here");
}

TEST_CASE("a peer is not cut for the time that our own handler takes", "[http]") {
    WebSocketServer server(limits_of(&net::WebSocketLimits::idle));
    server.on_message = [](net::WebSocket& socket, const net::WebSocketMessage&) {
        std::this_thread::sleep_for(2 * kSoon);
        socket.send(false, {part_of("slow")});
    };
    RawWebSocket client(server.port());
    client.send_frame({kText, "work"});
    REQUIRE(client.read_message().payload == "slow");
    const auto ping = client.read_frame();
    REQUIRE(ping.opcode == kPing);
    client.send_frame({kPong, ping.payload});
    CHECK(client.read_frame().opcode == kPing);
}

TEST_CASE("a peer that takes nothing is cut", "[http]") {
    WebSocketServer server(limits_of(&net::WebSocketLimits::stall));
    RawWebSocket client(server.port());
    const auto socket = server.socket();
    CHECK(socket->send(true, {part_of(std::string(32 << 20, 'x'))}));
    const auto end = server.end();
    CHECK(end.code == CloseCode::abnormal);
    CHECK(end.reason == "the peer takes nothing");
    CHECK_FALSE(socket->send(false, {part_of("late")}));
}

TEST_CASE("a peer that takes nothing is cut although it sends", "[http]") {
    WebSocketServer server(limits_of(&net::WebSocketLimits::stall));
    server.on_message = [](net::WebSocket&, const net::WebSocketMessage&) {};
    RawWebSocket client(server.port());
    server.socket()->send(true, {part_of(std::string(32 << 20, 'x'))});
    std::jthread sends([&](const std::stop_token& stop) {
        while (!stop.stop_requested() && client.send_frame({kText, "busy"}))
            std::this_thread::sleep_for(milliseconds(1));
    });
    CHECK(server.end().reason == "the peer takes nothing");
}

TEST_CASE("a peer that takes nothing is cut although we go on sending", "[http]") {
    WebSocketServer server(limits_of(&net::WebSocketLimits::stall));
    RawWebSocket client(server.port());
    const auto socket = server.socket();
    const auto until = patience();
    while (socket->send(true, {part_of(std::string(100'000, 'x'))}) && steady_clock::now() < until)
        std::this_thread::sleep_for(milliseconds(1));
    CHECK(server.end().reason == "the peer takes nothing");
}

TEST_CASE("a peer that takes slowly is not cut", "[http]") {
    auto limits = patient_limits();
    limits.stall = milliseconds(500);
    WebSocketServer server(limits);
    RawWebSocket client(server.port());
    const std::string bytes = random_bytes(32 << 20);
    server.socket()->send(true, {part_of(bytes)});
    const auto start = steady_clock::now();
    std::string got = client.read_bytes(10);  // the head
    got.clear();
    while (got.size() < bytes.size()) {
        const std::string piece = client.read_bytes(std::min<std::size_t>(bytes.size() - got.size(), 512 << 10));
        REQUIRE_FALSE(piece.empty());
        got += piece;
        std::this_thread::sleep_for(milliseconds(10));
    }
    CHECK((got == bytes));
    CHECK(steady_clock::now() - start > limits.stall);
}

}  // namespace
}  // namespace shared_tensor::test
