// Peers that break the protocol, break off, ask too much, or do nothing.

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "web_socket_peer.hpp"

namespace shared_tensor::test {
namespace {

using net::CloseCode;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

struct Rejected {
    std::string name;
    std::string bytes;
    int code;
};

/// `masked`: as the peer's frames have to be.
std::vector<Rejected> wrong_frames(bool masked) {
    const auto frame = [&](int opcode, std::string payload, bool last = true, int reserved = 0) {
        return RawFrame{opcode, std::move(payload), last, masked, reserved}.bytes();
    };
    const std::string start = frame(kText, "start", false);
    std::vector<Rejected> cases = {
        {"a mask that must not be, or that is missing", RawFrame{kText, "x", true, !masked}.bytes(), 1002},
        {"the same of an empty frame", RawFrame{kText, "", true, !masked}.bytes(), 1002},
        {"the same of a ping", RawFrame{kPing, "", true, !masked}.bytes(), 1002},
        {"the same before the payload came", raw_head(0x82, 1000, !masked), 1002},
        {"first reserved bit", frame(kText, "x", true, 4), 1002},
        {"second reserved bit", frame(kText, "x", true, 2), 1002},
        {"third reserved bit of a ping", frame(kPing, "x", true, 1), 1002},
        {"fragmented ping", frame(kPing, "x", false), 1002},
        {"fragmented close", frame(kClose, "", false), 1002},
        {"ping of 126 bytes", frame(kPing, std::string(126, 'x')), 1002},
        {"pong of 65536 bytes", frame(kPong, std::string(65536, 'x')), 1002},
        {"close of 126 bytes", frame(kClose, std::string(126, 'x')), 1002},
        {"ping that is too long, before its length came", masked ? "\x89\xfe" : "\x89\x7e", 1002},
        {"negative length", raw_head(0x82, std::uint64_t{1} << 63, masked), 1002},
        {"length of all ones", raw_head(0x82, ~std::uint64_t{0}, masked), 1002},
        {"length of 1 in two bytes", raw_head(0x82, 1, masked, 2) + "x", 1002},
        {"length of 125 in two bytes", raw_head(0x82, 125, masked, 2), 1002},
        {"length of 126 in eight bytes", raw_head(0x82, 126, masked, 8), 1002},
        {"length of 65535 in eight bytes", raw_head(0x82, 65535, masked, 8), 1002},
        {"continuation of nothing", frame(kContinuation, "x"), 1002},
        {"fragmented continuation of nothing", frame(kContinuation, "x", false), 1002},
        {"continuation after the end", start + frame(kContinuation, "") + frame(kContinuation, ""), 1002},
        {"message in a message", start + frame(kText, "other"), 1002},
        {"message of another kind in a message", start + frame(kBinary, "other", false), 1002},
        {"close frame of one byte", frame(kClose, "\x03"), 1002},
        {"text that is too large", frame(kText, std::string(101, 'x')), 1009},
        {"binary that is too large", frame(kBinary, std::string(1001, 'x')), 1009},
        {"fragments that are too large",
         frame(kText, std::string(60, 'x'), false) + frame(kContinuation, std::string(41, 'x'), false), 1009},
        {"only said to be too large", raw_head(0x81, 0x7fff'ffff'ffff'ffff, masked), 1009},
        {"the same behind a fragment", start + raw_head(0x80, 0x7fff'ffff'ffff'ffff, masked), 1009},
    };
    for (const int opcode : {3, 4, 5, 6, 7, 11, 12, 13, 14, 15})
        cases.push_back({"unknown opcode", frame(opcode, "x"), 1002});
    for (const int code : {0, 1, 999, 1004, 1005, 1006, 1015, 1016, 1100, 2000, 2999, 5000, 65535})
        cases.push_back({"close with " + std::to_string(code), frame(kClose, raw_close(code).payload), 1002});
    return cases;
}

TEST_CASE("what breaks the protocol or a limit is told so, and what comes behind it is not seen", "[http]") {
    const bool is_server = GENERATE(true, false);
    net::WebSocketLimits limits;
    limits.max_text_bytes = 100;
    limits.max_binary_bytes = 1000;
    for (const auto& [name, bytes, code] : wrong_frames(is_server)) {
        INFO(name);
        std::atomic<int> smuggled{0};
        Duo duo({is_server, false}, limits, [&](net::WebSocket&, const net::WebSocketMessage& message) {
            if (message.text() == "smuggled") ++smuggled;
        });
        duo.peer().send(bytes + duo.bytes_of({kText, "smuggled"}));
        CHECK(duo.read_close_code() == code);
        CHECK(duo.is_over());
        CHECK(duo.end().code == static_cast<CloseCode>(code));
        CHECK(smuggled == 0);
    }
}

TEST_CASE("a message as large as its kind may be is received", "[http]") {
    net::WebSocketLimits limits;
    limits.max_text_bytes = 100;
    limits.max_binary_bytes = 1000;
    Duo duo(any_of_ours(), limits);
    duo.send({kText, std::string(100, 'x')});
    CHECK(duo.read_message().payload.size() == 100);
    duo.send({kBinary, std::string(1000, 'x')});
    CHECK(duo.read_message().payload.size() == 1000);
    duo.send({kText, std::string(60, 'x'), false});
    duo.send({kContinuation, std::string(40, 'x')});
    CHECK(duo.read_message().payload.size() == 100);
}

TEST_CASE("a peer that goes without a close frame ends the WebSocket as abnormal", "[http]") {
    enum class How { closes, resets, closes_its_side };
    const Ours ours = any_of_ours();
    const How how = GENERATE(How::closes, How::resets, How::closes_its_side);
    if (how == How::closes_its_side && ours.has_tls) return;  // TLS has no half of a connection
    const std::vector<std::pair<RawFrame, std::size_t>> sent = {
        {{kText, ""}, 0},
        {{kText, "whole"}, 100},
        {{kText, "fragment", false}, 100},
        {{kText, "cut in its payload"}, 10},
        {{kText, "cut in its head"}, 1},
        {{kBinary, random_bytes(100'000)}, 70'000},
    };
    for (const auto& [frame, bytes] : sent) {
        Duo duo(ours);
        duo.peer().send(duo.bytes_of(frame).substr(0, bytes));
        duo.socket();
        if (how == How::closes) duo.peer().close();
        if (how == How::resets) duo.peer().reset();
        if (how == How::closes_its_side) duo.peer().half_close();
        CHECK(duo.end().code == CloseCode::abnormal);
    }
}

TEST_CASE("a handler that throws ends its own WebSocket, and no other", "[http]") {
    const QuietLog quiet;
    WebSocketServer server({}, {}, Over::tcp, [](net::WebSocket& socket, const net::WebSocketMessage& message) {
        if (message.text() == "throw") throw std::runtime_error("thrown by the test's handler");
        socket.send(message.binary, {part_of(std::string(message.text()))});
    });
    RawWebSocket client(server.port());
    const auto kept = server.socket();
    RawWebSocket other(server.port());
    client.send_frame({kText, "throw"});
    CHECK(client.is_closed());
    CHECK(eventually([&] { return server.server().stats().connections == 1; }));
    CHECK_FALSE(kept->send(false, {part_of("late")}));
    other.send_frame({kText, "fine"});
    CHECK(read_raw_message(other).payload == "fine");
}

// Memory.

TEST_CASE("messages count against the budget of all and their client's until they are given up", "[http]") {
    const bool has_client_budget = GENERATE(false, true);
    const auto budget = std::make_shared<Budget>(has_client_budget ? 10'000 : 1 << 30);
    net::ServerOptions options;
    if (!has_client_budget) options.max_bytes_in_flight = 10'000;
    Guarded<std::vector<std::shared_ptr<PooledBuffer>>> kept;
    WebSocketServer server({}, options, Over::tcp, [&](net::WebSocket& socket, net::WebSocketMessage message) {
        if (!message.binary) return void(socket.send(false, {part_of("let go")}));
        kept.with([&](auto& all) { all.push_back(std::move(message.bytes)); });
        socket.send(true, {part_of("kept")});
    });
    server.handler().on_upgrade = [budget, upgrade = server.handler().on_upgrade](const net::RequestHead& head) {
        auto plan = upgrade(head);
        plan->client_budget = budget;
        return plan;
    };
    RawWebSocket client(server.port());
    for (int i = 0; i < 10; ++i) {
        client.send_frame({kText, std::string(9'000, 'x')});
        REQUIRE(read_raw_message(client).payload == "let go");
    }
    client.send_frame({kBinary, std::string(9'000, 'x')});
    REQUIRE(read_raw_message(client).payload == "kept");
    CHECK(budget->used() == 9'000);
    const std::vector<std::string> too_much = {
        RawFrame{kBinary, std::string(2'000, 'x')}.bytes(),
        RawFrame{kText, std::string(600, 'x'), false}.bytes() +
            RawFrame{kContinuation, std::string(6'000, 'x')}.bytes(),
    };
    for (const std::string& bytes : too_much) {
        RawWebSocket other(server.port());
        other.send(bytes);
        CHECK(read_close_code(other) == 1013);
        CHECK(other.is_closed());
    }
    kept.with([](auto& all) { all.clear(); });
    CHECK(eventually([&] { return budget->used() == 600; }));  // of the WebSocket with a fragment, which is kept here
    client.send_frame({kBinary, std::string(9'400, 'x')});
    CHECK(read_raw_message(client).payload == "kept");
}

TEST_CASE("a peer that pings without taking the answers costs little memory, and is answered once it takes them",
          "[http]") {
    Duo duo(any_of_ours(), patient_limits());
    REQUIRE(duo.socket().send(true, {part_of(std::string(32 << 20, 'x'))}));
    const std::uint64_t before = duo.socket().unsent();
    std::string pings;
    for (int i = 0; i < 1000; ++i)
        pings += duo.bytes_of({kPing, std::string(125, 'x')});
    for (int i = 0; i < 100; ++i)
        REQUIRE(duo.peer().send(pings));
    duo.send({kText, "behind them"});
    REQUIRE(eventually([&] { return duo.runner().messages() == 1; }));
    CHECK(duo.socket().unsent() < before + 1'000'000);
    for (int of_message = 0; of_message < 2;) {
        const auto frame = duo.read_frame();
        REQUIRE(frame.opcode != -1);
        if (frame.opcode != kPong) ++of_message;
    }
    duo.send({kPing, "late"});
    CHECK(duo.read_frame().payload == "late");
}

// Time.

constexpr milliseconds kSoon{200};

net::WebSocketLimits limits_of(milliseconds net::WebSocketLimits::*which, milliseconds time = kSoon) {
    auto limits = patient_limits();
    limits.*which = time;
    return limits;
}

TEST_CASE("a message that is not gone on with is rejected, whatever is sent beside it", "[http]") {
    const Ours ours = any_of_ours();
    const std::vector<std::pair<RawFrame, std::size_t>> starts = {
        {{kBinary, std::string(100, 'x')}, 50},
        {{kBinary, std::string(100'000, 'x')}, 50'000},
        {{kBinary, std::string(100, 'x')}, ours.is_server ? 6U : 2U},  // its head
        {{kText, "fragment", false}, 100},
    };
    for (const auto& [frame, bytes] : starts) {
        Duo duo(ours, limits_of(&net::WebSocketLimits::stall));
        duo.peer().send(duo.bytes_of(frame).substr(0, bytes));
        int code = 0;
        for (const auto until = patience(); code == 0 && steady_clock::now() < until;) {
            if (!frame.last) duo.send({kPing});  // pings do not stand for going on
            const auto answer = duo.read_frame();
            REQUIRE((answer.opcode == kPong || answer.opcode == kClose));
            code = answer.code();
        }
        CHECK(code == 1008);
        CHECK(duo.is_over());
    }
}

TEST_CASE("a message that trickles below the least rate is rejected", "[http]") {
    auto limits = limits_of(&net::WebSocketLimits::stall, milliseconds(100));
    limits.min_bytes_per_second = 1'000'000;
    Duo duo({GENERATE(true, false), false}, limits);
    duo.peer().send(duo.bytes_of({kBinary, std::string(1'000'000, 'x')}).substr(0, 20));
    const auto trickles = trickle(duo.peer());
    CHECK(duo.read_close_code() == 1008);
}

TEST_CASE("a message may stall for less than the limit as often as it likes", "[http]") {
    const bool is_server = GENERATE(true, false);
    CHECK(eventually([&] {  // a pause of this thread may be longer than the limit
        Duo duo({is_server, false}, limits_of(&net::WebSocketLimits::stall, milliseconds(500)));
        const auto start = steady_clock::now();
        std::size_t pieces = 0;
        for (; steady_clock::now() - start < milliseconds(800); ++pieces) {
            duo.send({pieces == 0 ? kText : kContinuation, "x", false});
            std::this_thread::sleep_for(milliseconds(20));
        }
        duo.send({kContinuation, "", true});
        return duo.read_message().payload == std::string(pieces, 'x');
    }));
}

TEST_CASE("a silent peer is sent a ping and then cut, in the middle of a head too", "[http]") {
    const bool in_a_head = GENERATE(false, true);
    const Ours ours = any_of_ours();
    CHECK(eventually([&] {
        const auto start = steady_clock::now();
        Duo duo(ours, limits_of(&net::WebSocketLimits::idle));
        if (in_a_head) duo.peer().send("\x82");
        const auto ping = duo.read_frame();
        if (in_a_head && ping.opcode != kPing) return false;  // that byte may come after the cut, and the ping is lost
        CHECK(ping.opcode == kPing);
        CHECK(steady_clock::now() - start >= kSoon / 2);
        auto after = duo.read_frame();
        if (in_a_head && after.opcode == kPing) after = duo.read_frame();  // the first one went out before that byte
        CHECK(after.opcode == -1);
        CHECK(steady_clock::now() - start >= kSoon);
        CHECK(duo.end().code == CloseCode::abnormal);
        return true;
    }));
}

TEST_CASE("a peer that answers pings is kept for as long as it does, whatever time our own handler takes", "[http]") {
    const Ours ours = any_of_ours();
    milliseconds idle = kSoon / 2;
    REQUIRE(eventually([&] {  // an answer may be late: the next attempt has twice the time
        idle *= 2;
        Duo duo(ours, limits_of(&net::WebSocketLimits::idle, idle),
                [idle](net::WebSocket& socket, const net::WebSocketMessage&) {
                    std::this_thread::sleep_for(2 * idle);
                    socket.send(false, {part_of("slow")});
                });
        for (int round = 0; round < 2; ++round) {
            for (int i = 0; i < 3; ++i) {
                const auto ping = duo.read_frame();
                if (ping.opcode != kPing) return false;
                duo.send({kPong, ping.payload});
            }
            duo.send({kText, "work"});
            if (duo.read_message().payload != "slow") return false;
        }
        return true;
    }));
    idle = kSoon / 2;
    CHECK(eventually([&] {
        idle *= 2;
        const net::WebSocketLimits limits = limits_of(&net::WebSocketLimits::idle, idle);
        WebSocketServer server(limits);  // ours on both sides
        BufferPool buffers;
        Event ended;
        WebSocketRunner client([](net::WebSocket&, const net::WebSocketMessage&) {});
        const auto socket = connect_to(server.endpoint(), buffers, limits);
        std::jthread runs([&] {
            client.run(socket);
            ended.set();
        });
        const auto comes = [&](auto holds) {
            return eventually([&] { return holds() || ended.count() > 0; }) && ended.count() == 0;
        };
        const bool is_kept = comes([&] { return socket->bytes_in() >= 4 * 2; }) &&  // four pings
                             socket->send(false, {part_of("still here")}) &&
                             comes([&] { return client.messages() > 0; });
        socket->abort();
        return is_kept;
    }));
}

TEST_CASE("a peer that takes nothing is cut, although it sends, or we go on sending", "[http]") {
    enum class Meanwhile { nothing, it_sends, we_send };
    const auto meanwhile = GENERATE(Meanwhile::nothing, Meanwhile::it_sends, Meanwhile::we_send);
    Duo duo({GENERATE(true, false), false}, limits_of(&net::WebSocketLimits::stall),
            [](net::WebSocket&, const net::WebSocketMessage&) {});
    net::WebSocket& socket = duo.socket();
    CHECK(socket.send(true, {part_of(std::string(32 << 20, 'x'))}));
    std::jthread acts([&](const std::stop_token& stop) {
        while (!stop.stop_requested() && meanwhile != Meanwhile::nothing) {
            const bool goes_on = meanwhile == Meanwhile::it_sends
                                     ? duo.send({kText, "busy"})
                                     : socket.send(true, {part_of(std::string(100'000, 'x'))});
            if (!goes_on) return;
            std::this_thread::sleep_for(milliseconds(1));
        }
    });
    const auto end = duo.end();
    CHECK(end.code == CloseCode::abnormal);
    CHECK(end.reason == "the peer takes nothing");
    CHECK(eventually([&] { return !socket.send(false, {part_of("late")}); }));
}

TEST_CASE("a peer that takes slowly is not cut, and gets every byte", "[http]") {
    const auto limits = limits_of(&net::WebSocketLimits::stall, milliseconds(500));
    const Over over = GENERATE(Over::tcp, Over::tls);
    std::vector<net::BodyPart> messages;  // made before any is sent: nobody reads until all are
    std::string expected;
    for (std::size_t size = 1; size < 16'000'000; size = size * 3 + 1) {
        const std::string bytes = random_bytes(size);
        messages.push_back(part_of(bytes));
        expected += raw_head(0x82, size, false) + bytes;
    }
    CHECK(eventually([&] {  // a pause of this thread may be longer than the limit
        WebSocketServer server(limits, {}, over);
        const auto client = server.transport().raw_client(4096);
        client->send(web_socket_request());
        REQUIRE(client->read_answer(true).status == 101);
        const auto start = steady_clock::now();
        for (const net::BodyPart& message : messages) {
            if (!server.socket()->send(true, {message})) return false;
        }
        std::string got;
        while (got.size() < expected.size()) {
            const std::string some = client->read_bytes(std::min<std::size_t>(expected.size() - got.size(), 256 << 10));
            if (some.empty()) return false;
            got += some;
            std::this_thread::sleep_for(milliseconds(10));
        }
        CHECK((got == expected));
        CHECK(steady_clock::now() - start > limits.stall);
        CHECK(eventually([&] { return server.socket()->unsent() == 0; }));
        return true;
    }));
}

}  // namespace
}  // namespace shared_tensor::test
