#include <catch2/catch_test_macros.hpp>

#include "net/web_socket/web_socket.hpp"

#include "own_web_socket.hpp"
#include "unit/net/tls_peer.hpp"

namespace shared_tensor::test {
namespace {

using net::CloseCode;

/// The real server, whose WebSockets are under TLS.
struct SafeWebSocketServer {
    SafeWebSocketServer() : server({}, options(files)) {}
    net::Endpoint endpoint() { return files.endpoint(server.port()); }

    TlsFiles files;
    WebSocketServer server;

private:
    static net::ServerOptions options(const TlsFiles& files) {
        net::ServerOptions options;
        options.tls = files.tls();
        return options;
    }
};

/// A WebSocket whose bytes a test puts together.
RawTls raw_web_socket(int port) {
    RawTls client((RawClient(port)));
    if (!client.shake_hands()) throw std::runtime_error("no TLS");
    client.send(web_socket_request());
    if (!client.read_some().starts_with("HTTP/1.1 101")) throw std::runtime_error("the handshake was rejected");
    return client;
}

std::string read_bytes(RawTls& from, std::size_t count) {
    std::string bytes;
    while (bytes.size() < count) {
        const std::string some = from.read_some(count - bytes.size());
        if (some.empty()) break;
        bytes += some;
    }
    return bytes;
}

TEST_CASE("messages of every kind and size come back over TLS", "[http][tls]") {
    SafeWebSocketServer under_test;
    OwnClient client(under_test.endpoint());
    std::size_t count = 0;
    for (const int kind : {kText, kBinary}) {
        for (const std::size_t size : {0, 1, 125, 126, 16'384, 65'535, 65'536, 300'000, 10'000'000}) {
            INFO(size << " bytes of kind " << kind);
            const std::string bytes = random_bytes(size);
            CHECK(client.send(kind, bytes));
            const auto received = client.receive(++count);
            REQUIRE(received.size() == count);
            CHECK(received.back().binary == (kind == kBinary));
            REQUIRE((received.back().text == bytes));
        }
    }
    client.socket().close(CloseCode::normal, "done");
    CHECK(client.end().code == CloseCode::normal);
    CHECK(under_test.server.end().code == CloseCode::normal);
}

TEST_CASE("both sides of a WebSocket under TLS send at once", "[http][tls]") {
    SafeWebSocketServer under_test;
    under_test.server.on_message = [](net::WebSocket&, const net::WebSocketMessage&) {};
    OwnClient client(under_test.endpoint());
    const auto socket = under_test.server.socket();
    const std::string bytes = random_bytes(400'000);
    constexpr std::size_t kMessages = 40;
    std::jthread from_server([&] {
        for (std::size_t i = 0; i < kMessages; ++i)
            socket->send_whole(true, {part_of(bytes)});
    });
    for (std::size_t i = 0; i < kMessages; ++i)
        client.socket().send_whole(true, {part_of(bytes)});
    from_server.join();
    const auto received = client.receive(kMessages);
    REQUIRE(received.size() == kMessages);
    for (const Received& one : received)
        REQUIRE((one.text == bytes));
    CHECK(eventually([&] { return under_test.server.messages() == kMessages; }));
}

TEST_CASE("a thread takes turns with its peer under TLS", "[http][tls]") {
    SafeWebSocketServer under_test;
    OwnClient client(under_test.endpoint());
    net::WebSocketInlineReads turns(client.shared_socket());
    bool read_inline = false;
    const SteadyTime latest = patience();
    for (std::size_t i = 0; i < 1000 || (!read_inline && real_clock().now() < latest); ++i) {
        const std::string text(i * 37 % 20'000, static_cast<char>('a' + i % 26));
        client.send(kBinary, text);
        turns.before_wait([&] { return client.count() > i; });
        const Received answer = client.receive_one(i);
        REQUIRE((answer.text == text));
        read_inline |= answer.by == std::this_thread::get_id();
    }
    CHECK(read_inline);
}

TEST_CASE("messages that come in a row under TLS are all received, without a further byte", "[http][tls]") {
    SafeWebSocketServer under_test;
    RawTls client = raw_web_socket(under_test.server.port());
    for (const std::size_t size : {100'000, 20'000, 65'536, 300'000}) {
        const std::string bytes = random_bytes(size);
        client.socket().send(
            client.seal_each({RawFrame{kBinary, bytes}.bytes(), RawFrame{kText, "behind it"}.bytes()}));
        const std::string head = raw_head(0x82, size, false);
        const std::string answer = read_bytes(client, head.size() + size);
        REQUIRE((answer == head + bytes));
        REQUIRE(read_bytes(client, 11) == raw_head(0x81, 9, false) + "behind it");
    }
}

TEST_CASE("what comes in one packet with a handshake under TLS is not lost on the server", "[http][tls]") {
    SafeWebSocketServer under_test;
    for (const std::size_t size : {5, 50'000, 65'536 - 300, 100'000, 500'000}) {
        INFO(size);
        RawTls client((RawClient(under_test.server.port())));
        REQUIRE(client.shake_hands());
        const std::string bytes = random_bytes(size);
        client.socket().send(
            client.seal_each({web_socket_request(), RawFrame{kBinary, bytes}.bytes(), RawFrame{kText, "end"}.bytes()}));
        const std::string expected = raw_head(0x82, size, false) + bytes + raw_head(0x81, 3, false) + "end";
        std::string answer;
        while (answer.find("\r\n\r\n") == std::string::npos) {
            const std::string some = client.read_some(1);
            REQUIRE_FALSE(some.empty());
            answer += some;
        }
        REQUIRE((read_bytes(client, expected.size()) == expected));
    }
}

TEST_CASE("what a server sends at once behind its handshake under TLS is not lost on the client", "[http][tls]") {
    const TlsFiles files;
    for (const std::size_t size : {5, 10'000, 30'000, 60'000, 200'000}) {
        INFO(size);
        const std::string bytes = random_bytes(size);
        RawServer server;
        std::jthread serve([&] {
            RawTls connection(server.accept(), files.server_files());
            if (!connection.shake_hands()) return;
            std::string request;
            while (request.find("\r\n\r\n") == std::string::npos) {
                const std::string some = connection.read_some();
                if (some.empty()) return;
                request += some;
            }
            RawFrame frame{kBinary, bytes};
            frame.masked = false;
            RawFrame end{kText, "end"};
            end.masked = false;
            connection.socket().send(
                connection.seal_each({net::render_switching(key_of(request)), frame.bytes(), end.bytes()}));
            connection.read_to_end();
        });
        OwnClient client(files.endpoint(server.port()));
        const auto received = client.receive(2);
        REQUIRE(received.size() == 2);
        CHECK((received[0].text == bytes));
        CHECK(received[1].text == "end");
    }
}

TEST_CASE("a peer under TLS that takes slowly gets every message", "[http][tls]") {
    SafeWebSocketServer under_test;
    RawTls client(narrow_client(under_test.server.port(), 4096));
    REQUIRE(client.shake_hands());
    client.send(web_socket_request());
    REQUIRE(client.read_some().starts_with("HTTP/1.1 101"));
    const auto socket = under_test.server.socket();
    std::string expected;
    for (std::size_t size = 1; size < 16'000'000; size = size * 3 + 1) {
        const std::string bytes = random_bytes(size);
        REQUIRE(socket->send(true, {part_of(bytes)}));
        expected += raw_head(0x82, size, false) + bytes;
    }
    std::string got;
    while (got.size() < expected.size()) {
        const std::string some = client.read_some(1000);
        REQUIRE_FALSE(some.empty());
        got += some;
    }
    CHECK((got == expected));
    CHECK(eventually([&] { return socket->unsent() == 0; }));
}

TEST_CASE("a WebSocket under TLS that is cut off ends on both sides", "[http][tls]") {
    SafeWebSocketServer under_test;
    OwnClient client(under_test.endpoint());
    under_test.server.socket()->abort();
    CHECK(client.end().code == CloseCode::abnormal);
    CHECK(under_test.server.end().code == CloseCode::abnormal);
}

}  // namespace
}  // namespace shared_tensor::test
