#include "net/web_socket/web_socket_handshake.hpp"

#include <catch2/catch_test_macros.hpp>
#include <set>
#include <vector>

#include "web_socket_peer.hpp"

namespace shared_tensor::test {
namespace {

using net::TransportError;

const std::string kKey = "dGhlIHNhbXBsZSBub25jZQ==";

/// A right handshake with other values of one field.
net::RequestHead head_with(const std::string& name, const std::vector<std::string>& values,
                           const std::string& method = "GET") {
    net::RequestHead head;
    head.method = method;
    head.path = "/socket";
    for (const auto& [field, value] : std::vector<std::pair<std::string, std::string>>{{"Host", "here"},
                                                                                       {"Upgrade", "websocket"},
                                                                                       {"Connection", "Upgrade"},
                                                                                       {"Sec-WebSocket-Version", "13"},
                                                                                       {"Sec-WebSocket-Key", kKey}}) {
        if (field != name) head.headers.add(field, value);
    }
    for (const auto& value : values)
        head.headers.add(name, value);
    return head;
}

TEST_CASE("a handshake may be spelled as HTTP allows, and one with a fault says which", "[http]") {
    const std::string upgrade = "Upgrade", connection = "Connection", version = "Sec-WebSocket-Version",
                      key = "Sec-WebSocket-Key";
    const struct {
        std::string field;
        std::vector<std::string> values;
        std::string rejection;
    } table[] = {
        {upgrade, {"websocket"}, ""},
        {upgrade, {"WebSocket"}, ""},
        {upgrade, {"h2c, websocket"}, ""},
        {connection, {"keep-alive, Upgrade"}, ""},
        {connection, {"keep-alive", "UPGRADE"}, ""},
        {key, {" \t" + kKey + " "}, ""},
        {key, {"++++++++++++//////////=="}, ""},
        {upgrade, {}, "Upgrade: websocket"},
        {upgrade, {"h2c"}, "Upgrade: websocket"},
        {upgrade, {"websocket2"}, "Upgrade: websocket"},
        {connection, {}, "Connection: Upgrade"},
        {connection, {"keep-alive"}, "Connection: Upgrade"},
        {version, {}, version},
        {version, {"8"}, version},
        {version, {"13", "13"}, version},
        {key, {}, key},
        {key, {kKey, kKey}, key},
        {key, {""}, key},
        {key, {"dGhlIHNhbXBsZSBub25j"}, key},      // 15 bytes
        {key, {"dGhlIHNhbXBsZSBub25jZSE="}, key},  // 17 bytes
        {key, {"dGhlIHNhbXBsZSBub25j!!=="}, key},
    };
    for (const auto& row : table) {
        INFO(row.field << ": " << (row.values.empty() ? "none" : row.values.front()));
        const auto rejection = net::rejection_of_handshake(head_with(row.field, row.values));
        CHECK(rejection.empty() == row.rejection.empty());
        CHECK(rejection.find(row.rejection) != std::string_view::npos);
    }
}

TEST_CASE("only GET asks for a WebSocket, also where the rest is wrong", "[http]") {
    CHECK(net::asks_for_web_socket(head_with("Connection", {})));
    for (const char* method : {"POST", "HEAD", "PUT", "get"}) {
        CHECK_FALSE(net::asks_for_web_socket(head_with("Host", {}, method)));
        CHECK_FALSE(net::rejection_of_handshake(head_with("Host", {}, method)).empty());
    }
}

TEST_CASE("an answer names the subprotocol that the server chose, or none", "[http]") {
    const std::string plain = net::render_switching(kKey), chosen = net::render_switching(kKey, {}, "shared-tensor");
    CHECK(plain.find("Sec-WebSocket-Protocol") == std::string::npos);
    CHECK(chosen.find("\r\nSec-WebSocket-Protocol: shared-tensor\r\n") != std::string::npos);
    CHECK(plain.ends_with("\r\n\r\n"));
    CHECK(chosen.ends_with("\r\n\r\n"));
}

TEST_CASE("fresh keys are well-formed and never the same", "[http]") {
    std::set<std::string> keys;
    for (int i = 0; i < 100; ++i)
        keys.insert(net::fresh_handshake_key());
    CHECK(keys.size() == 100);
    for (const std::string& key : keys)
        CHECK(net::rejection_of_handshake(head_with("Sec-WebSocket-Key", {key})).empty());
}

TEST_CASE("a handshake is answered with 101 and the proof that it was understood, behind other requests too",
          "[http]") {
    WebSocketServer server;
    RawClient client(server.port());
    client.send(post("/p", "a"));
    for (const char byte : web_socket_request())
        client.send({&byte, 1});
    CHECK(client.read_answer().body == "a");
    CHECK(client.read_answer().head ==
          "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
          "Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n");
}

TEST_CASE("a handshake with a fault, or that the handler declines or fails at, is a request like any other", "[http]") {
    const QuietLog quiet;
    WebSocketServer server;
    std::atomic<int> upgrades{0};
    server.handler().on_upgrade = [&](const net::RequestHead& head) -> std::optional<net::WebSocketPlan> {
        ++upgrades;
        if (head.path == "/throw") throw std::runtime_error("thrown by the test's handler");
        return std::nullopt;
    };
    RawClient client(server.port());
    client.send(get("/wrong", "Upgrade: websocket\r\nConnection: Upgrade\r\n") + web_socket_request("/declined") +
                get("/next") + web_socket_request("/throw"));
    for (int i = 0; i < 3; ++i)
        CHECK(client.read_answer().status == 200);
    CHECK(client.read_answer().status == 500);
    CHECK(client.is_closed());
    CHECK(server.handler().admitted() == std::vector<std::string>{"/wrong", "/declined", "/next"});
    CHECK(upgrades == 2);
}

// Our client.

TEST_CASE("the handshake carries path and headers of the request, and gives the answer that rejects it", "[http]") {
    WebSocketServer server;
    Guarded<net::RequestHead> seen;
    server.handler().on_upgrade = nullptr;
    server.handler().on_admit = [&](const net::RequestHead& head) {
        *seen.lock() = head;
        return net::Response::json(403, "not you");
    };
    BufferPool buffers;
    auto request = request_to("/else%20where?a=b");
    request.headers.add("Authorization", "Bearer x");
    const auto connected = net::connect_web_socket(server.endpoint(), request, kConnect, {}, buffers);
    REQUIRE(std::holds_alternative<net::ClientResponse>(connected));
    CHECK(std::get<net::ClientResponse>(connected).status == 403);
    CHECK(std::get<net::ClientResponse>(connected).text() == "not you");
    const auto head = *seen.lock();
    CHECK(head.path == "/else where");
    CHECK(head.query == "a=b");
    CHECK(head.headers.find("Authorization") == "Bearer x");
    CHECK(head.headers.find("Host") == server.endpoint().authority());
}

/// What connect_web_socket() throws for an answer, in which `from` becomes `to`.
TransportError failure_of(const std::string& from, const std::string& to,
                          std::chrono::milliseconds deadline = std::chrono::seconds(30)) {
    INFO(from << " becomes " << to);
    RawServer server;
    std::jthread misbehaves([&] {
        auto connection = server.accept();
        std::string answer = web_socket_answer(connection);
        answer.replace(from.empty() ? 0 : answer.find(from), from.empty() ? answer.size() : from.size(), to);
        connection.send(answer);
        connection.read_to_end();
    });
    BufferPool buffers;
    auto request = request_to();
    request.deadline = std::chrono::steady_clock::now() + deadline;
    try {
        const auto endpoint = net::Endpoint::parse("http://127.0.0.1:" + std::to_string(server.port()));
        net::connect_web_socket(endpoint, request, kConnect, {}, buffers);
    } catch (const TransportError& error) {
        return error;
    }
    FAIL("the handshake succeeded");
    throw std::logic_error("unreachable");
}

TEST_CASE("an answer 101 with one field wrong is an error, and so is none", "[http]") {
    using Kind = TransportError::Kind;
    const std::string accept = "Sec-WebSocket-Accept: ", end = "\r\n\r\n";
    const std::pair<std::string, std::string> changes[] = {
        {"Upgrade: websocket\r\n", ""},
        {"Upgrade: websocket\r\n", "Upgrade: h2c\r\n"},
        {"Connection: Upgrade\r\n", ""},
        {"Connection: Upgrade\r\n", "Connection: close\r\n"},
        {accept, "X: "},
        {accept, accept + net::accept_key(kKey) + "\r\nX: "},  // of another key
        {end, "\r\nSec-WebSocket-Extensions: permessage-deflate\r\n\r\n"},
        {end, "\r\nSec-WebSocket-Protocol: unasked\r\n\r\n"},
        {"", "SSH-2.0-OpenSSH_9.2\r\n\r\n"},
    };
    for (const auto& [from, to] : changes)
        CHECK(failure_of(from, to).kind == Kind::protocol);
    for (const char* begun : {"", "HTTP/1.1 101 Switching Protocols\r\nUpg"})
        CHECK(failure_of("", begun, std::chrono::milliseconds(50)).kind == Kind::timeout);
}

}  // namespace
}  // namespace shared_tensor::test
