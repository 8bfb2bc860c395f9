#include <httplib.h>

#include <catch2/catch_test_macros.hpp>

#include "web_socket_peer.hpp"

namespace shared_tensor::test {
namespace {

using net::CloseCode;

/// cpp-httplib's client, which was written by others.
class ForeignClient : public httplib::ws::WebSocketClient {
public:
    explicit ForeignClient(int port) : WebSocketClient("ws://127.0.0.1:" + std::to_string(port) + "/socket") {
        set_read_timeout(30);
        set_websocket_ping_interval(0);
    }
};

TEST_CASE("a foreign client exchanges messages with our server, and hears that it closes", "[http]") {
    WebSocketServer server;
    ForeignClient client(server.port());
    REQUIRE(client.connect());
    std::string answer;
    for (const std::size_t size : {0, 1, 125, 126, 65535, 65536, 10 << 20}) {
        INFO(size);
        const std::string bytes = random_bytes(size), text(size, 't');
        REQUIRE(client.send(bytes.data(), bytes.size()));
        CHECK(client.read(answer) == httplib::ws::Binary);
        CHECK((answer == bytes));
        REQUIRE(client.send(text));
        CHECK(client.read(answer) == httplib::ws::Text);
        CHECK((answer == text));
    }
    CHECK(eventually([&] {  // the client may answer too late once
        WebSocketServer closing;
        ForeignClient hears(closing.port());
        REQUIRE(hears.connect());
        closing.socket()->close(CloseCode::normal, "done");
        CHECK(hears.read(answer) == httplib::ws::Fail);
        CHECK_FALSE(hears.is_open());
        return closing.end().code == CloseCode::normal;
    }));
}

TEST_CASE("a foreign client's close is heard and answered", "[http]") {
    WebSocketServer server;
    ForeignClient client(server.port());
    REQUIRE(client.connect());
    client.close(httplib::ws::CloseStatus::GoingAway, "leaving");
    const auto end = server.end();
    CHECK(end.code == CloseCode::going_away);
    CHECK(end.reason == "leaving");
}

TEST_CASE("a foreign client is told the status that rejects it", "[http]") {
    WebSocketServer server;
    server.handler().on_upgrade = nullptr;
    server.handler().on_admit = [](const net::RequestHead&) { return net::Response::json(403, "not you"); };
    ForeignClient client(server.port());
    const auto result = client.connect();
    CHECK_FALSE(result);
    CHECK(result.status() == 403);
}

}  // namespace
}  // namespace shared_tensor::test
