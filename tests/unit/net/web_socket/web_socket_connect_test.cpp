#include <catch2/catch_test_macros.hpp>

#include "own_web_socket.hpp"

namespace shared_tensor::test {
namespace {

using net::ClientResponse;
using net::TransportError;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

/// What connect_web_socket() threw for an answer of the server.
TransportError failure_of(const std::string& answer, milliseconds deadline = milliseconds(30'000)) {
    RawServer server;
    std::jthread misbehave([&] {
        auto connection = server.accept();
        RawServer::read_request(connection);
        connection.send(answer);
        connection.read_to_end();
    });
    BufferPool buffers;
    auto request = request_to();
    request.deadline = steady_clock::now() + deadline;
    try {
        net::connect_web_socket(endpoint_of(server.port()), request, kConnect, {}, buffers);
    } catch (const TransportError& error) {
        return error;
    }
    FAIL("the handshake succeeded");
    throw std::logic_error("unreachable");
}

TEST_CASE("the handshake carries path and headers of the request", "[http]") {
    WebSocketServer server;
    const auto serve = server.handler().on_upgrade;
    Guarded<net::RequestHead> seen;
    server.handler().on_upgrade = [&](const net::RequestHead& head) {
        *seen.lock() = head;
        return serve(head);
    };
    BufferPool buffers;
    auto request = request_to("/else%20where?a=b");
    request.headers.add("Authorization", "Bearer x");
    const auto connected = net::connect_web_socket(endpoint_of(server.port()), request, kConnect, {}, buffers);
    REQUIRE(std::holds_alternative<std::shared_ptr<net::WebSocket>>(connected));
    const auto head = *seen.lock();
    CHECK(head.path == "/else where");
    CHECK(head.query == "a=b");
    CHECK(head.headers.find("Authorization") == "Bearer x");
    CHECK(head.headers.find("Host") == endpoint_of(server.port()).authority());
}

TEST_CASE("a rejected handshake gives the answer that rejected it", "[http]") {
    WebSocketServer server;
    server.handler().on_upgrade = nullptr;
    server.handler().on_admit = [](const net::RequestHead&) { return net::Response::json(403, "not you"); };
    BufferPool buffers;
    const auto connected = net::connect_web_socket(endpoint_of(server.port()), request_to(), kConnect, {}, buffers);
    REQUIRE(std::holds_alternative<ClientResponse>(connected));
    CHECK(std::get<ClientResponse>(connected).status == 403);
    CHECK(std::get<ClientResponse>(connected).text() == "not you");
}

TEST_CASE("an answer 101 that is not that of a WebSocket is an error", "[http]") {
    using Kind = TransportError::Kind;
    const std::string start = "HTTP/1.1 101 Switching Protocols\r\n";
    const std::string upgrade = "Upgrade: websocket\r\n", connection = "Connection: Upgrade\r\n";
    const std::string accept = "Sec-WebSocket-Accept: " + net::accept_key("dGhlIHNhbXBsZSBub25jZQ==") + "\r\n";
    CHECK(failure_of(start + upgrade + connection + "\r\n").kind == Kind::protocol);
    CHECK(failure_of(start + upgrade + connection + accept + "\r\n").kind == Kind::protocol);  // of another key
    CHECK(failure_of("SSH-2.0-OpenSSH_9.2\r\n\r\n").kind == Kind::protocol);
}

TEST_CASE("an answer 101 with one field wrong is an error", "[http]") {
    const std::vector<std::pair<std::string, std::string>> changes = {
        {"Upgrade: websocket\r\n", ""},
        {"Upgrade: websocket\r\n", "Upgrade: h2c\r\n"},
        {"Connection: Upgrade\r\n", ""},
        {"Connection: Upgrade\r\n", "Connection: close\r\n"},
        {"\r\n\r\n", "\r\nSec-WebSocket-Extensions: permessage-deflate\r\n\r\n"},
        {"\r\n\r\n", "\r\nSec-WebSocket-Protocol: unasked\r\n\r\n"},
    };
    for (const auto& [from, to] : changes) {
        INFO(from << "becomes " << to);
        RawServer server;
        std::jthread misbehave([&, from = from, to = to] {
            auto connection = server.accept();
            std::string answer = net::render_switching(key_of(RawServer::read_request(connection)));
            answer.replace(answer.find(from), from.size(), to);
            connection.send(answer);
            connection.read_to_end();
        });
        BufferPool buffers;
        CHECK_THROWS_AS(net::connect_web_socket(endpoint_of(server.port()), request_to(), kConnect, {}, buffers),
                        TransportError);
    }
}

TEST_CASE("a handshake that is not answered ends at its deadline", "[http]") {
    CHECK(failure_of("", milliseconds(50)).kind == TransportError::Kind::timeout);
    CHECK(failure_of("HTTP/1.1 101 Switching Protocols\r\nUpg", milliseconds(50)).kind ==
          TransportError::Kind::timeout);
}

TEST_CASE("a WebSocket to nobody is an error of connecting", "[http]") {
    int port = 0;
    { port = RawServer().port(); }
    BufferPool buffers;
    try {
        net::connect_web_socket(endpoint_of(port), request_to(), kConnect, {}, buffers);
        FAIL("somebody answered");
    } catch (const TransportError& error) {
        CHECK(error.kind == TransportError::Kind::connect);
        CHECK_FALSE(error.sent);
    }
}

TEST_CASE("what the server sends in one packet with its handshake is not lost", "[http]") {
    for (const std::size_t size : {5, 100'000}) {
        RawServer server;
        const std::string bytes = random_bytes(size);
        RawClient connection{UniqueFd()};
        std::jthread serve([&] {
            connection = accept_web_socket(server, RawFrame{kBinary, bytes, true, false}.bytes());
        });
        OwnClient client(server.port());
        const auto received = client.receive(1);
        REQUIRE(received.size() == 1);
        CHECK((received.front().text == bytes));
        serve.join();
    }
}

}  // namespace
}  // namespace shared_tensor::test
