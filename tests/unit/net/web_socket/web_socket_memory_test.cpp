#include <catch2/catch_test_macros.hpp>

#include "net/web_socket/web_socket.hpp"
#include "web_socket_peer.hpp"

namespace shared_tensor::test {
namespace {

using net::CloseCode;

net::ServerOptions small_budget() {
    net::ServerOptions options;
    options.max_bytes_in_flight = 10'000;
    return options;
}

TEST_CASE("a message beyond the memory budget is rejected with 1013", "[http]") {
    const std::vector<std::string> cases = {
        RawFrame{kBinary, std::string(10'001, 'x')}.bytes(),
        RawFrame{kText, std::string(6'000, 'x'), false}.bytes() +
            RawFrame{kContinuation, std::string(6'000, 'x')}.bytes(),
    };
    for (const auto& bytes : cases) {
        WebSocketServer server({}, small_budget());
        RawWebSocket client(server.port());
        client.send(bytes);
        CHECK(client.read_close_code() == 1013);
        CHECK(client.is_closed());
        CHECK(server.end().code == CloseCode::try_again_later);
    }
}

TEST_CASE("messages that are given up give their budget back", "[http]") {
    WebSocketServer server({}, small_budget());
    RawWebSocket client(server.port());
    for (int i = 0; i < 10; ++i) {
        client.send_frame({kBinary, std::string(9'000, 'x')});
        REQUIRE(client.read_message().payload.size() == 9'000);
    }
}

TEST_CASE("messages that are kept count against the budget of other connections", "[http]") {
    WebSocketServer server({}, small_budget());
    std::shared_ptr<PooledBuffer> kept;
    Event came;
    server.on_message = [&](net::WebSocket&, net::WebSocketMessage message) {
        kept = std::move(message.bytes);
        came.set();
    };
    RawWebSocket client(server.port()), other(server.port());
    client.send_frame({kBinary, std::string(9'000, 'x')});
    REQUIRE(came.wait());
    other.send_frame({kBinary, std::string(2'000, 'x')});
    CHECK(other.read_close_code() == 1013);
    kept.reset();
}

net::WebSocketLimits patient_limits() {
    net::WebSocketLimits limits;
    limits.idle = limits.stall = std::chrono::milliseconds(600'000);
    return limits;
}

TEST_CASE("a peer that pings without taking the answers costs little memory", "[http]") {
    WebSocketServer server(patient_limits());
    RawWebSocket client(server.port());
    std::string pings;
    for (int i = 0; i < 1000; ++i)
        pings += RawFrame{kPing, std::string(125, 'x')}.bytes();
    for (int i = 0; i < 300; ++i)
        REQUIRE(client.send(pings));
    client.send_frame({kText, "behind them"});
    REQUIRE(eventually([&] { return server.messages() == 1; }));
    CHECK(server.socket()->unsent() < 1'000'000);
}

TEST_CASE("pings are answered again once their peer took what waited", "[http]") {
    WebSocketServer server(patient_limits());
    RawWebSocket client(server.port());
    const auto socket = server.socket();
    REQUIRE(socket->send(true, {part_of(std::string(32 << 20, 'x'))}));
    std::string pings;
    for (int i = 0; i < 5000; ++i)
        pings += RawFrame{kPing, "early"}.bytes();
    REQUIRE(client.send(pings + RawFrame{kText, "behind them"}.bytes()));
    REQUIRE(eventually([&] { return server.messages() == 1; }));
    for (int of_message = 0; of_message < 2;) {
        const auto frame = client.read_frame();
        REQUIRE(frame.opcode != -1);
        if (frame.opcode != kPong) ++of_message;
    }
    client.send_frame({kPing, "late"});
    CHECK(client.read_frame().payload == "late");
}

}  // namespace
}  // namespace shared_tensor::test
