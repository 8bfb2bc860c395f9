#include <catch2/catch_test_macros.hpp>

#include "net/web_socket/web_socket.hpp"
#include "web_socket_peer.hpp"

namespace shared_tensor::test {
namespace {

using net::CloseCode;
using std::chrono::milliseconds;

TEST_CASE("a close frame is answered with its code and the connection ends", "[http]") {
    for (const int code : {1000, 1001, 1011, 3000, 4999}) {
        INFO(code);
        WebSocketServer server;
        RawWebSocket client(server.port());
        client.send(raw_close(code, "enough"));
        CHECK(client.read_frame().code() == code);
        CHECK(client.is_closed());
        const auto end = server.end();
        CHECK(static_cast<int>(end.code) == code);
        CHECK(end.reason == "enough");
    }
}

TEST_CASE("a close frame without a code is answered as a normal end", "[http]") {
    WebSocketServer server;
    RawWebSocket client(server.port());
    client.send_frame({kClose});
    CHECK(client.read_frame().code() == 1000);
    CHECK(client.is_closed());
    CHECK(server.end().code == CloseCode::none);
}

TEST_CASE("what is sent behind a close frame is not received", "[http]") {
    WebSocketServer server;
    RawWebSocket client(server.port());
    client.send(raw_close(1000) + RawFrame{kText, "too late"}.bytes());
    CHECK(client.read_frame().code() == 1000);
    server.end();
    CHECK(server.messages() == 0);
}

TEST_CASE("a close of our side goes out behind what was sent and ends with the peer's answer", "[http]") {
    WebSocketServer server;
    RawWebSocket client(server.port());
    const auto socket = server.socket();
    const std::string big = random_bytes(3'000'000);
    CHECK(socket->send(true, {part_of(big)}));
    CHECK(socket->send(false, {part_of("last words")}));
    socket->close(CloseCode::going_away, "we stop");
    CHECK((client.read_message().payload == big));
    CHECK(client.read_message().payload == "last words");
    const auto close = client.read_frame();
    CHECK(close.code() == 1001);
    CHECK(close.payload.substr(2) == "we stop");
    client.send(raw_close(1001));
    CHECK(client.is_closed());
    CHECK(server.end().code == CloseCode::going_away);
}

TEST_CASE("only the first close goes out", "[http]") {
    WebSocketServer server;
    RawWebSocket client(server.port());
    const auto socket = server.socket();
    socket->close(CloseCode::going_away, "first");
    socket->close(CloseCode::normal, "second");
    CHECK(client.read_frame().code() == 1001);
    client.send(raw_close(1001));
    CHECK(client.is_closed());
}

TEST_CASE("a message that comes after our close is not handed over", "[http]") {
    WebSocketServer server;
    RawWebSocket client(server.port());
    server.socket()->close(CloseCode::normal, "");
    CHECK(client.read_frame().code() == 1000);
    client.send(RawFrame{kText, "crossed"}.bytes() + raw_close(1000));
    CHECK(server.end().code == CloseCode::normal);
    CHECK(server.messages() == 0);
}

TEST_CASE("abort ends a WebSocket at once", "[http]") {
    WebSocketServer server;
    RawWebSocket client(server.port());
    server.socket()->abort();
    CHECK(server.end().code == CloseCode::abnormal);
    CHECK(client.read_to_end().empty());
}

TEST_CASE("the server's stop ends its WebSockets", "[http]") {
    WebSocketServer server;
    RawWebSocket client(server.port());
    client.send_frame({kBinary, "half of a message", false});
    const auto socket = server.socket();
    server.server().stop(milliseconds(0));
    CHECK(server.end().code == CloseCode::abnormal);
    CHECK_FALSE(socket->send(false, {part_of("late")}));
    CHECK(client.is_closed());
}

}  // namespace
}  // namespace shared_tensor::test
