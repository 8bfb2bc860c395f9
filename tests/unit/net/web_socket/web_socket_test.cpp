#include "net/web_socket/web_socket.hpp"

#include <catch2/catch_test_macros.hpp>

#include "web_socket_peer.hpp"

namespace shared_tensor::test {
namespace {

TEST_CASE("a message of any size and kind comes back as it was sent", "[http]") {
    WebSocketServer server;
    RawWebSocket client(server.port());
    for (const int kind : {kText, kBinary}) {
        for (const std::size_t size : {0, 1, 125, 126, 127, 16383, 16384, 65535, 65536, 65537, 300'000}) {
            INFO(size << " bytes of kind " << kind);
            const std::string bytes = random_bytes(size);
            client.send_frame({kind, bytes});
            const auto answer = client.read_frame();
            CHECK(answer.opcode == kind);
            CHECK(answer.last);
            CHECK_FALSE(answer.masked);
            CHECK(answer.reserved == 0);
            REQUIRE(answer.payload == bytes);
        }
    }
}

TEST_CASE("a message of 10 MiB arrives whole and equal both ways", "[http]") {
    WebSocketServer server;
    RawWebSocket client(server.port());
    const std::string bytes = random_bytes(10 << 20);
    client.send_frame({kBinary, bytes});
    CHECK((client.read_message().payload == bytes));
}

TEST_CASE("frames that come byte by byte are understood", "[http]") {
    WebSocketServer server;
    RawWebSocket client(server.port());
    for (const auto& frame : {RawFrame{kText, "hello"}, RawFrame{kBinary, random_bytes(200)}, RawFrame{kText, ""}}) {
        for (const char byte : frame.bytes())
            client.send({&byte, 1});
        const auto answer = client.read_frame();
        CHECK(answer.opcode == frame.opcode);
        CHECK(answer.payload == frame.payload);
    }
}

TEST_CASE("a large frame may be cut anywhere", "[http]") {
    WebSocketServer server;
    RawWebSocket client(server.port());
    const std::string bytes = random_bytes(100'000);
    const std::string frame = RawFrame{kBinary, bytes}.bytes();
    for (const std::size_t cut : {1, 2, 9, 10, 13, 14, 15, 16, 1000, 65535, 65536, 99'999}) {
        INFO(cut);
        client.send(frame.substr(0, cut));
        client.send(frame.substr(cut) + RawFrame{kPing, "behind"}.bytes());
        REQUIRE(client.read_frame().payload == bytes);
        REQUIRE(client.read_frame().payload == "behind");
    }
}

TEST_CASE("fragments are one message of their first one's kind", "[http]") {
    WebSocketServer server;
    RawWebSocket client(server.port());
    const std::string big = random_bytes(100'000);
    const std::vector<std::vector<std::string>> cases = {
        {"a", "b"}, {"", "", "abc", ""}, {"", ""}, {big, "small", big}, std::vector<std::string>(1000, "x")};
    for (const auto& fragments : cases) {
        std::string whole;
        for (std::size_t i = 0; i < fragments.size(); ++i) {
            client.send_frame({i == 0 ? kText : kContinuation, fragments[i], i + 1 == fragments.size()});
            whole += fragments[i];
        }
        const auto answer = client.read_frame();
        CHECK(answer.opcode == kText);
        REQUIRE(answer.payload == whole);
    }
}

TEST_CASE("a ping in the middle of a fragmented message is answered before its end", "[http]") {
    WebSocketServer server;
    RawWebSocket client(server.port());
    client.send_frame({kBinary, "first ", false});
    client.send_frame({kPing, "are you there?"});
    const auto pong = client.read_frame();
    CHECK(pong.opcode == kPong);
    CHECK(pong.payload == "are you there?");
    client.send_frame({kContinuation, "last"});
    CHECK(client.read_frame().payload == "first last");
}

TEST_CASE("every ping is answered with its own payload in its turn", "[http]") {
    WebSocketServer server;
    RawWebSocket client(server.port());
    std::string all;
    for (std::size_t i = 0; i < 126; ++i)
        all += RawFrame{kPing, std::string(i, 'p')}.bytes();
    client.send(all);
    for (std::size_t i = 0; i < 126; ++i) {
        const auto pong = client.read_frame();
        REQUIRE(pong.opcode == kPong);
        REQUIRE(pong.payload == std::string(i, 'p'));
    }
}

TEST_CASE("a pong that nobody asked for is passed over", "[http]") {
    WebSocketServer server;
    RawWebSocket client(server.port());
    client.send(RawFrame{kPong, "unasked"}.bytes() + RawFrame{kText, "next"}.bytes());
    CHECK(client.read_frame().payload == "next");
}

TEST_CASE("messages that come in one packet are all received in their order", "[http]") {
    WebSocketServer server;
    RawWebSocket client(server.port());
    std::string all;
    for (int i = 0; i < 500; ++i)
        all += RawFrame{kText, "number " + std::to_string(i)}.bytes();
    client.send(all);
    for (int i = 0; i < 500; ++i)
        REQUIRE(client.read_message().payload == "number " + std::to_string(i));
}

TEST_CASE("what comes in one packet with the handshake is not lost", "[http]") {
    WebSocketServer server;
    for (const std::size_t size : {5, 50'000}) {
        RawClient client(server.port());
        const std::string bytes = random_bytes(size);
        client.send(web_socket_request() + RawFrame{kBinary, bytes}.bytes());
        REQUIRE(client.read_answer().status == 101);
        CHECK(read_raw_frame(client).payload == bytes);
    }
}

TEST_CASE("the server counts what its WebSockets moved", "[http]") {
    WebSocketServer server;
    RawWebSocket client(server.port());
    client.send_frame({kBinary, random_bytes(100'000)});
    client.read_message();
    client.send(raw_close(1000));
    CHECK(client.read_close_code() == 1000);
    CHECK(eventually([&] {
        const auto stats = server.server().stats();
        return stats.bytes_in >= 100'000 && stats.bytes_out >= 100'000;
    }));
}

}  // namespace
}  // namespace shared_tensor::test
