#include "net/web_socket/web_socket_handshake.hpp"

#include <array>
#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <set>

#include "base/bytes/ids.hpp"
#include "own_web_socket.hpp"

namespace shared_tensor::test {
namespace {

using net::CloseCode;
using net::Endpoint;
using std::chrono::milliseconds;

TEST_CASE("client and server exchange messages of every kind and size over TCP and a Unix socket", "[http]") {
    const auto path = std::filesystem::temp_directory_path() / (random_id("shared_tensor_test_") + ".sock");
    net::ServerOptions options;
    options.unix_socket = path.string();
    WebSocketServer server({}, options);
    for (const auto& endpoint : {endpoint_of(server.port()), Endpoint::parse("unix:" + path.string())}) {
        OwnClient client(endpoint);
        std::size_t count = 0;
        for (const int kind : {kText, kBinary}) {
            for (const std::size_t size : {0, 1, 125, 126, 65535, 65536, 300'000}) {
                INFO(size << " bytes of kind " << kind);
                const std::string bytes = random_bytes(size);
                CHECK(client.send(kind, bytes));
                const auto received = client.receive(++count);
                REQUIRE(received.size() == count);
                CHECK(received.back().binary == (kind == kBinary));
                REQUIRE((received.back().text == bytes));
            }
        }
    }
}

TEST_CASE("10 MiB of our own client arrive whole and equal both ways", "[http]") {
    WebSocketServer server;
    OwnClient client(server.port());
    const std::string bytes = random_bytes(10 << 20);
    client.send(kBinary, bytes);
    const auto received = client.receive(1);
    REQUIRE(received.size() == 1);
    CHECK((received.front().text == bytes));
}

TEST_CASE("messages that many threads of a client send stay whole and in each thread's order", "[http]") {
    constexpr int kThreads = 6, kMessages = 200;
    WebSocketServer server;
    OwnClient client(server.port());
    std::vector<std::jthread> threads;
    for (int t = 0; t < kThreads; ++t) {
        threads.emplace_back([&client, t] {
            for (int i = 0; i < kMessages; ++i)
                client.send(kText,
                            std::string(static_cast<std::size_t>(i * 13 % 2000 + 1), static_cast<char>('a' + t)) +
                                std::to_string(i));
        });
    }
    const auto received = client.receive(std::size_t{kThreads} * kMessages);
    REQUIRE(received.size() == std::size_t{kThreads} * kMessages);
    std::array<int, kThreads> next{};
    for (const Received& one : received) {
        const std::string& text = one.text;
        const int thread = text.front() - 'a';
        const int number = next.at(static_cast<std::size_t>(thread))++;
        REQUIRE(text ==
                std::string(static_cast<std::size_t>(number * 13 % 2000 + 1), text.front()) + std::to_string(number));
    }
}

TEST_CASE("a client masks every frame and never twice with the same bytes", "[http]") {
    RawServer server;
    RawClient connection{UniqueFd()};
    std::jthread serve([&] { connection = accept_web_socket(server); });
    OwnClient client(server.port());
    serve.join();
    std::set<std::string> masks;
    for (int i = 0; i < 100; ++i) {
        client.send(kText, "hello");
        const std::string frame = connection.read_bytes(11);
        REQUIRE(frame.size() == 11);
        CHECK(static_cast<unsigned char>(frame[1]) == 0x80 + 5);
        masks.insert(frame.substr(2, 4));
    }
    CHECK(masks.size() > 95);  // random ones may meet, though hardly ever
}

TEST_CASE("a large message of a client is masked rightly however the server takes it", "[http]") {
    RawServer server;
    RawClient connection{UniqueFd()};
    std::jthread serve([&] { connection = accept_web_socket(server); });
    OwnClient client(server.port());
    serve.join();
    std::vector<net::BodyPart> parts;
    std::string whole;
    for (const std::size_t size : {1, 300'001, 0, 7, 262'144, 5'000'003}) {
        parts.push_back(part_of(random_bytes(size)));
        whole += random_bytes(size);
    }
    client.socket().send(true, parts);
    const auto frame = read_raw_frame(connection);
    CHECK(frame.masked);
    CHECK((frame.payload == whole));
}

TEST_CASE("a client rejects a server that masks its frames", "[http]") {
    RawServer server;
    RawClient connection{UniqueFd()};
    std::jthread serve([&] { connection = accept_web_socket(server, RawFrame{kText, "masked"}.bytes()); });
    OwnClient client(server.port());
    serve.join();
    CHECK(read_raw_frame(connection).code() == 1002);
    CHECK(client.end().code == CloseCode::protocol_error);
}

TEST_CASE("a client hears why the server closes", "[http]") {
    WebSocketServer server;
    OwnClient client(server.port());
    server.socket()->close(CloseCode::going_away, "we stop");
    const auto end = client.end();
    CHECK(end.code == CloseCode::going_away);
    CHECK(end.reason == "we stop");
    CHECK(server.end().code == CloseCode::going_away);
    CHECK_FALSE(client.send(kText, "late"));
}

TEST_CASE("a client's close reaches the server and comes back", "[http]") {
    WebSocketServer server;
    OwnClient client(server.port());
    client.socket().close(CloseCode::normal, "done");
    CHECK(client.end().code == CloseCode::normal);
    CHECK(server.end().reason == "done");
}

TEST_CASE("a client's abort ends its run at once", "[http]") {
    WebSocketServer server;
    OwnClient client(server.port());
    client.socket().abort();
    CHECK(client.end().code == CloseCode::abnormal);
    CHECK(server.end().code == CloseCode::abnormal);
}

TEST_CASE("a client and a server that are both silent keep each other alive with pings", "[http]") {
    net::WebSocketLimits limits;
    limits.idle = milliseconds(200);
    WebSocketServer server(limits);
    OwnClient client(server.port());
    const std::uint64_t before = client.socket().bytes_in();
    CHECK(eventually([&] { return client.socket().bytes_in() - before >= 4 * 2; }));  // four pings
    client.send(kText, "still here");
    CHECK(client.receive(1).size() == 1);
}

}  // namespace
}  // namespace shared_tensor::test
