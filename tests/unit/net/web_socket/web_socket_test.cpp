// What both ends do with right frames.

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "web_socket_peer.hpp"

namespace shared_tensor::test {
namespace {

using net::CloseCode;

TEST_CASE("a message of any size and kind comes back as it was sent", "[http]") {
    const Ours ours = any_of_ours();
    Duo duo(ours);
    for (const int kind : {kText, kBinary}) {
        for (const std::size_t size : {0, 1, 125, 126, 127, 16384, 65535, 65536, 65537, 300'000, 10 << 20}) {
            INFO(size << " bytes of kind " << kind);
            const std::string bytes = random_bytes(size);
            duo.send({kind, bytes});
            const auto answer = duo.read_frame();
            CHECK(answer.opcode == kind);
            CHECK(answer.last);
            CHECK(answer.masked != ours.is_server);
            CHECK(answer.reserved == 0);
            REQUIRE((answer.payload == bytes));
        }
    }
}

TEST_CASE("frames may be cut anywhere", "[http]") {
    Duo duo(any_of_ours());
    for (const auto& frame : {RawFrame{kText, "hello"}, RawFrame{kBinary, random_bytes(200)}, RawFrame{kText, ""}}) {
        for (const char byte : duo.bytes_of(frame))
            duo.peer().send({&byte, 1});
        const auto answer = duo.read_frame();
        CHECK(answer.opcode == frame.opcode);
        CHECK(answer.payload == frame.payload);
    }
    const std::string bytes = random_bytes(100'000);
    const std::string frame = duo.bytes_of({kBinary, bytes});
    for (const std::size_t cut : {1, 2, 9, 10, 13, 14, 15, 16, 1000, 65535, 65536, 99'999}) {
        INFO(cut);
        duo.peer().send(frame.substr(0, cut));
        duo.peer().send(frame.substr(cut) + duo.bytes_of({kPing, "behind"}));
        REQUIRE((duo.read_frame().payload == bytes));
        REQUIRE(duo.read_frame().payload == "behind");
    }
}

TEST_CASE("messages that come in one packet, with the handshake or later, are all received in their order", "[http]") {
    const Ours ours = any_of_ours();
    for (const std::size_t size : {5, 50'000, 65'536 - 300, 100'000, 500'000}) {
        INFO(size);
        std::vector<std::string> payloads = {random_bytes(size), "behind it"}, frames;
        for (int i = 0; i < 100; ++i)
            payloads.push_back("number " + std::to_string(i));
        for (const std::string& payload : payloads)
            frames.push_back(RawFrame{kBinary, payload, true, ours.is_server}.bytes());
        Duo duo(ours, {}, nullptr, frames);
        for (int round = 0; round < 2; ++round) {
            for (const std::string& payload : payloads)
                REQUIRE((duo.read_message().payload == payload));
            if (round == 0) duo.peer().send_each(frames);
        }
    }
}

TEST_CASE("fragments are one message of their first one's kind, and pings among them are answered at once", "[http]") {
    Duo duo(any_of_ours());
    const std::string big = random_bytes(100'000);
    const std::vector<std::vector<std::string>> cases = {
        {"a", "b"}, {"", "", "abc", ""}, {"", ""}, {big, "small", big}, std::vector<std::string>(1000, "x")};
    for (const auto& fragments : cases) {
        std::string whole;
        for (std::size_t i = 0; i < fragments.size(); ++i) {
            duo.send({i == 0 ? kText : kContinuation, fragments[i], i + 1 == fragments.size()});
            whole += fragments[i];
            if (i > 2) continue;
            if (i + 1 < fragments.size()) {
                duo.send({kPing, "are you there?"});
                const auto pong = duo.read_frame();
                CHECK(pong.opcode == kPong);
                CHECK(pong.payload == "are you there?");
            }
        }
        const auto answer = duo.read_frame();
        CHECK(answer.opcode == kText);
        REQUIRE((answer.payload == whole));
    }
}

TEST_CASE("every ping is answered with its own payload in its turn, and no pong is", "[http]") {
    Duo duo(any_of_ours());
    std::string all = duo.bytes_of({kPong, "unasked"});
    for (std::size_t i = 0; i < 126; ++i)
        all += duo.bytes_of({kPing, std::string(i, 'p')});
    duo.peer().send(all);
    for (std::size_t i = 0; i < 126; ++i) {
        const auto pong = duo.read_frame();
        REQUIRE(pong.opcode == kPong);
        REQUIRE(pong.payload == std::string(i, 'p'));
    }
}

TEST_CASE("both sides send at once", "[http]") {
    const bool has_tls = GENERATE(false, true);
    const std::string bytes = random_bytes(400'000);
    CHECK(eventually([&] {  // a close may be answered too late once
        WebSocketServer server({}, {}, has_tls ? Over::tls : Over::unix_socket,
                               [](net::WebSocket&, const net::WebSocketMessage&) {});
        OwnClient client(server.endpoint());
        const auto socket = server.socket();
        constexpr std::size_t kMessages = 40;
        std::jthread from_server([&] {
            for (std::size_t i = 0; i < kMessages; ++i)
                socket->send_whole(true, {part_of(bytes)});
        });
        for (std::size_t i = 0; i < kMessages; ++i)
            client.socket()->send_whole(true, {part_of(bytes)});
        from_server.join();
        const auto received = client.receive(kMessages);
        REQUIRE(received.size() == kMessages);
        for (const Received& one : received)
            REQUIRE((one.binary && one.text == bytes));
        CHECK(eventually([&] { return server.messages() == kMessages; }));
        client.socket()->close(CloseCode::normal, "done");
        if (client.end().code != CloseCode::normal || server.end().reason != "done") return false;
        CHECK(eventually([&] {
            const auto stats = server.server().stats();
            return stats.bytes_in >= kMessages * bytes.size() && stats.bytes_out >= kMessages * bytes.size();
        }));
        return true;
    }));
}

// The end.

TEST_CASE("a close frame is answered with its code, and nothing behind it is received", "[http]") {
    const Ours ours = any_of_ours();
    for (const int code :
         {0, 1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 1012, 1013, 1014, 3000, 3999, 4999}) {
        INFO(code);
        Duo duo(ours);
        const RawFrame close = code == 0 ? RawFrame{kClose} : raw_close(code, "enough");
        duo.peer().send(duo.bytes_of(close) + duo.bytes_of({kText, "too late"}));
        CHECK(duo.read_frame().code() == (code == 0 ? 1000 : code));
        CHECK(duo.is_over());
        const auto end = duo.end();
        CHECK(end.code == (code == 0 ? CloseCode::none : static_cast<CloseCode>(code)));
        CHECK(end.reason == (code == 0 ? "" : "enough"));
        CHECK(duo.runner().messages() == 0);
    }
}

TEST_CASE("a close of our side goes out once, behind what was sent, and ends with the peer's answer", "[http]") {
    const Ours ours = any_of_ours();
    const std::string big = random_bytes(3'000'000);
    CHECK(eventually([&] {  // this peer may be too late once: it has 3 s from the close on
        Duo duo(ours);
        CHECK(duo.socket().send(true, {part_of(big)}));
        CHECK(duo.socket().send(false, {part_of("last words")}));
        duo.socket().close(CloseCode::going_away, "we stop");
        duo.socket().close(CloseCode::normal, "once more");
        CHECK_FALSE(duo.socket().send(false, {part_of("late")}));
        if (duo.read_message().payload != big || duo.read_message().payload != "last words") return false;
        const auto close = duo.read_frame();
        if (close.code() != 1001) return false;
        CHECK(close.payload.substr(2) == "we stop");
        duo.peer().send(duo.bytes_of({kText, "crossed"}) + duo.bytes_of(raw_close(1001)));
        CHECK(duo.is_over());
        CHECK(duo.runner().messages() == 0);
        return duo.end().code == CloseCode::going_away;
    }));
}

TEST_CASE("abort ends a WebSocket at once, and so does the stop of its server", "[http]") {
    Duo duo(any_of_ours());
    duo.send({kBinary, "half of a message", false});
    duo.socket().abort();
    CHECK(duo.end().code == CloseCode::abnormal);
    CHECK(duo.is_over());

    WebSocketServer server;
    RawWebSocket client(server.port());
    client.send_frame({kBinary, "half of a message", false});
    const auto socket = server.socket();
    server.server().stop(std::chrono::milliseconds(0));
    CHECK(server.end().code == CloseCode::abnormal);
    CHECK_FALSE(socket->send(false, {part_of("late")}));
    CHECK(client.is_closed());
}

}  // namespace
}  // namespace shared_tensor::test
