#include "net/web_socket/web_socket_handshake.hpp"

#include <catch2/catch_test_macros.hpp>
#include <set>
#include <vector>

#include "web_socket_peer.hpp"

namespace shared_tensor::test {
namespace {

using Fields = std::vector<std::pair<std::string, std::string>>;

constexpr std::string_view kKey = "dGhlIHNhbXBsZSBub25jZQ==", kAccept = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";

net::RequestHead head_of(const Fields& fields, std::string method = "GET") {
    net::RequestHead head;
    head.method = std::move(method);
    head.path = "/socket";
    for (const auto& [name, value] : fields)
        head.headers.add(name, value);
    return head;
}

const Fields kGood = {{"Host", "here"},
                      {"Upgrade", "websocket"},
                      {"Connection", "Upgrade"},
                      {"Sec-WebSocket-Version", "13"},
                      {"Sec-WebSocket-Key", std::string(kKey)}};

/// The good handshake with the values of one field in place of its own.
Fields with(const std::string& name, const std::vector<std::string>& values) {
    Fields fields;
    for (const auto& field : kGood) {
        if (field.first != name) fields.push_back(field);
    }
    for (const auto& value : values)
        fields.emplace_back(name, value);
    return fields;
}

TEST_CASE("the accepted key is the key of the example in RFC 6455", "[http]") {
    CHECK(net::accept_key(kKey) == kAccept);
}

TEST_CASE("a handshake as RFC 6455 wants it has no fault", "[http]") {
    CHECK(net::rejection_of_handshake(head_of(kGood)).empty());
}

TEST_CASE("a handshake may be spelled as HTTP allows", "[http]") {
    const std::vector<Fields> cases = {
        with("Upgrade", {"WebSocket"}),
        with("Upgrade", {"h2c, websocket"}),
        with("Connection", {"keep-alive, Upgrade"}),
        with("Connection", {"keep-alive", "UPGRADE"}),
        with("Sec-WebSocket-Key", {" \t" + std::string(kKey) + " "}),
        with("Sec-WebSocket-Key", {"++++++++++++//////////=="}),
    };
    for (const auto& fields : cases)
        CHECK(net::rejection_of_handshake(head_of(fields)).empty());
}

TEST_CASE("a handshake with a fault says which", "[http]") {
    struct Case {
        const char* name;
        Fields fields;
        std::string_view rejection;
    };
    const std::vector<Case> cases = {
        {"no Upgrade", with("Upgrade", {}), "Upgrade: websocket"},
        {"another protocol", with("Upgrade", {"h2c"}), "Upgrade: websocket"},
        {"a protocol that only starts so", with("Upgrade", {"websocket2"}), "Upgrade: websocket"},
        {"no Connection", with("Connection", {}), "Connection: Upgrade"},
        {"Connection of another kind", with("Connection", {"keep-alive"}), "Connection: Upgrade"},
        {"no version", with("Sec-WebSocket-Version", {}), "Sec-WebSocket-Version"},
        {"old version", with("Sec-WebSocket-Version", {"8"}), "Sec-WebSocket-Version"},
        {"two versions", with("Sec-WebSocket-Version", {"13", "13"}), "Sec-WebSocket-Version"},
        {"no key", with("Sec-WebSocket-Key", {}), "Sec-WebSocket-Key"},
        {"two keys", with("Sec-WebSocket-Key", {std::string(kKey), std::string(kKey)}), "Sec-WebSocket-Key"},
        {"empty key", with("Sec-WebSocket-Key", {""}), "Sec-WebSocket-Key"},
        {"key of 15 bytes", with("Sec-WebSocket-Key", {"dGhlIHNhbXBsZSBub25j"}), "Sec-WebSocket-Key"},
        {"key of 17 bytes", with("Sec-WebSocket-Key", {"dGhlIHNhbXBsZSBub25jZSE="}), "Sec-WebSocket-Key"},
        {"key that is no base64", with("Sec-WebSocket-Key", {"dGhlIHNhbXBsZSBub25j!!=="}), "Sec-WebSocket-Key"},
    };
    for (const auto& [name, fields, rejection] : cases) {
        INFO(name);
        CHECK(net::rejection_of_handshake(head_of(fields)).find(rejection) != std::string_view::npos);
    }
}

TEST_CASE("only GET asks for a WebSocket", "[http]") {
    CHECK(net::asks_for_web_socket(head_of(kGood)));
    for (const char* method : {"POST", "HEAD", "PUT", "get"}) {
        CHECK_FALSE(net::asks_for_web_socket(head_of(kGood, method)));
        CHECK_FALSE(net::rejection_of_handshake(head_of(kGood, method)).empty());
    }
}

TEST_CASE("a request that names the protocol asks for it even when the rest is wrong", "[http]") {
    CHECK(net::asks_for_web_socket(head_of({{"Upgrade", "websocket"}})));
}

TEST_CASE("fresh keys are well-formed and never the same", "[http]") {
    std::set<std::string> keys;
    for (int i = 0; i < 100; ++i) {
        const std::string key = net::fresh_handshake_key();
        CHECK(net::rejection_of_handshake(head_of(with("Sec-WebSocket-Key", {key}))).empty());
        keys.insert(key);
    }
    CHECK(keys.size() == 100);
}

TEST_CASE("a handshake is answered with 101 and the proof that it was understood", "[http]") {
    WebSocketServer server;
    RawClient client(server.port());
    client.send(web_socket_request());
    CHECK(client.read_answer().head ==
          "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
          "Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n");
}

TEST_CASE("a handshake that comes byte by byte is answered all the same", "[http]") {
    WebSocketServer server;
    RawClient client(server.port());
    for (const char byte : web_socket_request())
        client.send({&byte, 1});
    CHECK(client.read_answer().status == 101);
}

TEST_CASE("a WebSocket may be asked for on a connection that served requests before", "[http]") {
    WebSocketServer server;
    RawClient client(server.port());
    client.send(post("/p", "a") + web_socket_request());
    CHECK(client.read_answer().body == "a");
    CHECK(client.read_answer().status == 101);
}

TEST_CASE("a handshake with a fault goes to the handler as any other request", "[http]") {
    WebSocketServer server;
    std::atomic<int> upgrades{0};
    server.handler().on_upgrade = [&](const net::RequestHead&) {
        ++upgrades;
        return std::nullopt;
    };
    server.handler().on_admit = [](const net::RequestHead&) { return net::Response::json(426, "no"); };
    RawClient client(server.port());
    client.send(get("/socket", "Upgrade: websocket\r\nConnection: Upgrade\r\n"));
    CHECK(client.read_answer().status == 426);
    CHECK(upgrades == 0);
}

TEST_CASE("a handler that declines a WebSocket answers the request itself", "[http]") {
    WebSocketServer server;
    server.handler().on_upgrade = nullptr;
    RawClient client(server.port());
    client.send(web_socket_request("/elsewhere") + get("/next"));
    CHECK(client.read_answer().status == 200);
    CHECK(client.read_answer().status == 200);
    CHECK(server.handler().admitted() == std::vector<std::string>{"/elsewhere", "/next"});
}

TEST_CASE("a handler that fails to decide on a WebSocket costs no more than this request", "[http]") {
    const QuietLog quiet;
    WebSocketServer server;
    server.handler().on_upgrade = [](const net::RequestHead& head) -> std::optional<net::WebSocketPlan> {
        throw std::runtime_error("thrown by the test's handler for " + head.path);
    };
    RawClient client(server.port());
    client.send(web_socket_request() + get("/next"));
    CHECK(client.read_answer().status == 200);
    CHECK(client.read_answer().status == 200);
}

}  // namespace
}  // namespace shared_tensor::test
