#include <catch2/catch_test_macros.hpp>

#include "net/web_socket/web_socket.hpp"
#include "web_socket_peer.hpp"

namespace shared_tensor::test {
namespace {

using net::CloseCode;

struct Rejected {
    std::string name;
    std::string bytes;
    int code;
};

/// Behind each of these comes a message that must never be seen.
const std::string kSmuggled = RawFrame{kText, "smuggled"}.bytes();

std::vector<Rejected> wrong_frames() {
    const std::string start = RawFrame{kText, "start", false}.bytes();
    std::vector<Rejected> cases = {
        {"unmasked", RawFrame{kText, "plain", true, false}.bytes(), 1002},
        {"unmasked and empty", RawFrame{kText, "", true, false}.bytes(), 1002},
        {"unmasked ping", RawFrame{kPing, "", true, false}.bytes(), 1002},
        {"first reserved bit", RawFrame{kText, "x", true, true, 4}.bytes(), 1002},
        {"second reserved bit", RawFrame{kText, "x", true, true, 2}.bytes(), 1002},
        {"third reserved bit of a ping", RawFrame{kPing, "x", true, true, 1}.bytes(), 1002},
        {"unknown opcode", RawFrame{3, "x"}.bytes(), 1002},
        {"unknown control opcode", RawFrame{11, "x"}.bytes(), 1002},
        {"fragmented ping", RawFrame{kPing, "x", false}.bytes(), 1002},
        {"ping of 126 bytes", RawFrame{kPing, std::string(126, 'x')}.bytes(), 1002},
        {"negative length", raw_head(0x82, ~std::uint64_t{0}), 1002},
        {"continuation of nothing", RawFrame{kContinuation, "x"}.bytes(), 1002},
        {"fragmented continuation of nothing", RawFrame{kContinuation, "x", false}.bytes(), 1002},
        {"continuation after the end",
         start + RawFrame{kContinuation, ""}.bytes() + RawFrame{kContinuation, ""}.bytes(), 1002},
        {"message in a message", start + RawFrame{kText, "other"}.bytes(), 1002},
        {"message of another kind in a message", start + RawFrame{kBinary, "other", false}.bytes(), 1002},
        {"close frame of one byte", RawFrame{kClose, "\x03"}.bytes(), 1002},
    };
    for (const int code : {0, 999, 1004, 1005, 1006, 1015, 1016, 2999, 5000, 65535})
        cases.push_back({"close with " + std::to_string(code), raw_close(code), 1002});
    return cases;
}

void check_rejection(WebSocketServer& server, const Rejected& rejected) {
    INFO(rejected.name);
    RawWebSocket client(server.port());
    client.send(rejected.bytes + kSmuggled);
    const auto close = client.read_message();  // what is whole before the fault may be echoed
    CHECK((close.code() != 0 ? close.code() : client.read_close_code()) == rejected.code);
    CHECK(client.is_closed());
}

TEST_CASE("what breaks the protocol is told so and ends the connection", "[http]") {
    for (const auto& rejected : wrong_frames()) {
        WebSocketServer server;
        std::atomic<int> smuggled{0};
        server.on_message = [&](net::WebSocket&, const net::WebSocketMessage& message) {
            if (message.text() == "smuggled") ++smuggled;
        };
        check_rejection(server, rejected);
        CHECK(server.end().code == CloseCode::protocol_error);
        CHECK(smuggled == 0);
    }
}

TEST_CASE("a fault in a frame is told before its payload came", "[http]") {
    WebSocketServer server;
    RawWebSocket client(server.port());
    client.send(raw_head(0x82, 1000, false));
    CHECK(client.read_close_code() == 1002);
}

net::WebSocketLimits small_limits() {
    net::WebSocketLimits limits;
    limits.max_text_bytes = 100;
    limits.max_binary_bytes = 1000;
    return limits;
}

TEST_CASE("a message larger than its kind may be is rejected with 1009", "[http]") {
    const std::string first = RawFrame{kText, std::string(60, 'x'), false}.bytes();
    const std::vector<Rejected> cases = {
        {"text in one frame", RawFrame{kText, std::string(101, 'x')}.bytes(), 1009},
        {"binary in one frame", RawFrame{kBinary, std::string(1001, 'x')}.bytes(), 1009},
        {"text in fragments", first + RawFrame{kContinuation, std::string(41, 'x'), false}.bytes(), 1009},
        {"only said to be", raw_head(0x81, 0x7fff'ffff'ffff'ffff), 1009},
        {"only said to be, behind a fragment", first + raw_head(0x80, 0x7fff'ffff'ffff'ffff), 1009},
    };
    for (const auto& rejected : cases) {
        WebSocketServer server(small_limits());
        check_rejection(server, rejected);
        CHECK(server.end().code == CloseCode::too_big);
        CHECK(server.messages() == 0);
    }
}

TEST_CASE("a message as large as its kind may be is received", "[http]") {
    WebSocketServer server(small_limits());
    RawWebSocket client(server.port());
    client.send_frame({kText, std::string(100, 'x')});
    CHECK(client.read_message().payload.size() == 100);
    client.send_frame({kBinary, std::string(1000, 'x')});
    CHECK(client.read_message().payload.size() == 1000);
    client.send_frame({kText, std::string(60, 'x'), false});
    client.send_frame({kContinuation, std::string(40, 'x')});
    CHECK(client.read_message().payload.size() == 100);
}

TEST_CASE("a peer that goes without a close frame ends the WebSocket as abnormal", "[http]") {
    const std::vector<std::string> before = {
        "",
        RawFrame{kText, "whole"}.bytes(),
        RawFrame{kText, "fragment", false}.bytes(),
        RawFrame{kText, "cut in its payload"}.bytes().substr(0, 10),
        RawFrame{kText, "cut in its head"}.bytes().substr(0, 3),
        RawFrame{kBinary, random_bytes(100'000)}.bytes().substr(0, 70'000),
    };
    for (const bool reset : {false, true}) {
        for (const auto& bytes : before) {
            WebSocketServer server;
            RawWebSocket client(server.port());
            client.send(bytes);
            server.socket();
            reset ? client.reset() : client.close();
            CHECK(server.end().code == CloseCode::abnormal);
            CHECK(eventually([&] { return server.server().stats().connections == 0; }));
        }
    }
}

TEST_CASE("a peer that closes only its sending side has ended the WebSocket", "[http]") {
    WebSocketServer server;
    RawWebSocket client(server.port());
    client.half_close();
    CHECK(server.end().code == CloseCode::abnormal);
    CHECK(client.is_closed());
}

TEST_CASE("a handler that throws ends its own WebSocket only", "[http]") {
    const QuietLog quiet;
    WebSocketServer server;
    server.on_message = [](net::WebSocket& socket, const net::WebSocketMessage& message) {
        if (message.text() == "throw") throw std::runtime_error("thrown by the test's handler");
        socket.send(message.binary, {part_of(std::string(message.text()))});
    };
    RawWebSocket other(server.port());
    {
        RawWebSocket client(server.port());
        client.send_frame({kText, "throw"});
        CHECK(eventually([&] { return server.messages() == 1; }));
    }
    CHECK(eventually([&] { return server.server().stats().connections == 1; }));
    other.send_frame({kText, "fine"});
    CHECK(other.read_message().payload == "fine");
}

TEST_CASE("a peer whose handler threw sees its connection end", "[http]") {
    const QuietLog quiet;
    WebSocketServer server;
    server.on_message = [](net::WebSocket&, const net::WebSocketMessage&) { throw std::runtime_error("thrown"); };
    RawWebSocket client(server.port());
    const auto kept = server.socket();
    client.send_frame({kText, "throw"});
    CHECK(client.is_closed());
}

TEST_CASE("a WebSocket whose handler threw sends no more", "[http]") {
    const QuietLog quiet;
    WebSocketServer server;
    server.on_message = [](net::WebSocket&, const net::WebSocketMessage&) { throw std::runtime_error("thrown"); };
    RawWebSocket client(server.port());
    const auto socket = server.socket();
    client.send_frame({kText, "throw"});
    CHECK(eventually([&] { return !socket->send(false, {part_of("late")}); }));
}

}  // namespace
}  // namespace shared_tensor::test
