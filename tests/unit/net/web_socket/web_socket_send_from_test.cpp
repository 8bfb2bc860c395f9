#include <algorithm>
#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <thread>

#include "net/web_socket/web_socket.hpp"
#include "web_socket_peer.hpp"

namespace shared_tensor::test {
namespace {

using std::chrono::milliseconds;

net::WebSocketLimits patient_limits() {
    net::WebSocketLimits limits;
    limits.idle = limits.stall = milliseconds(600'000);
    return limits;
}

TEST_CASE("memory that is sent from may change as soon as the call returns", "[http]") {
    WebSocketServer server(patient_limits());
    RawWebSocket client(server.port());
    const auto socket = server.socket();
    for (const std::size_t size : {0, 1, 1000, 60'000, 70'000, 3'000'000}) {
        INFO(size);
        std::string memory = random_bytes(size);
        const std::string as_sent = memory;
        std::atomic<bool> sent{false};
        std::jthread sends([&] {
            sent = socket->send_from("head", {{std::as_bytes(std::span(memory)), nullptr}});
            std::fill(memory.begin(), memory.end(), '!');
        });
        const auto message = client.read_frame();
        sends.join();
        CHECK(sent);
        CHECK(message.opcode == kBinary);
        CHECK((message.payload == "head" + as_sent));
    }
}

TEST_CASE("small memory is sent from without waiting for a peer that takes nothing", "[http]") {
    WebSocketServer server(patient_limits());
    RawWebSocket client(server.port());
    const auto socket = server.socket();
    std::string memory(1000, 'x');
    REQUIRE(socket->send(true, {part_of(std::string(32 << 20, 'x'))}));
    const std::uint64_t before = socket->unsent();
    for (int i = 0; i < 1000; ++i)
        REQUIRE(socket->send_from("", {{std::as_bytes(std::span(memory)), nullptr}}));
    CHECK(socket->unsent() == before + std::uint64_t{1000} * (1000 + 4));
    socket->abort();
    server.end();
}

TEST_CASE("who sends from much memory waits for a peer that takes nothing and hears of the end", "[http]") {
    WebSocketServer server(patient_limits());
    RawWebSocket client(server.port());
    const auto socket = server.socket();
    const std::string memory(32 << 20, 'x');
    Event returned;
    std::atomic<bool> sent{true};
    std::jthread sends([&] {
        sent = socket->send_from("", {{std::as_bytes(std::span(memory)), nullptr}});
        returned.set();
    });
    REQUIRE(eventually([&] { return socket->bytes_out() > 0; }));
    CHECK(returned.count() == 0);
    client.reset();
    REQUIRE(returned.wait());
    CHECK_FALSE(sent);
}

}  // namespace
}  // namespace shared_tensor::test
