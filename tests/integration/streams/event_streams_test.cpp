// Streams as clients see them that are not ours: events over plain HTTP, and the messages of a WebSocket.

#include <catch2/catch_test_macros.hpp>

#include "integration/client/example_daemon.hpp"
#include "support/rpc.hpp"
#include "support/web_socket_peer.hpp"

using namespace shared_tensor::test;

namespace {

/// A call whose answer is events, and what came of them.
struct Streamed {
    Streamed(int port, const Json& request) : peer(port) {
        peer.request("POST", "/jsonrpc", request.dump(), {{"Accept", "text/event-stream"}});
        head = peer.read_head();
    }
    /// The next event; null at the end.
    Json next() {
        std::size_t end = 0;
        while ((end = pending.find("\n\n")) == std::string::npos) {
            const std::string piece = peer.read_chunk();
            if (piece.empty()) return nullptr;
            pending += piece;
        }
        REQUIRE(pending.starts_with("data: "));
        Json message = Json::parse(pending.substr(6, end - 6));
        pending.erase(0, end + 2);
        return message;
    }
    std::vector<Json> all() {
        std::vector<Json> messages;
        for (Json message = next(); !message.is_null(); message = next())
            messages.push_back(message);
        return messages;
    }

    HttpPeer peer;
    HttpReply head;
    std::string pending;
};

const HeaderList kEvents{{"Accept", "text/event-stream"}};

}  // namespace

TEST_CASE("items and result are events of one answer, and an error in the middle is the last one", "[streams]") {
    const ExampleDaemon server;
    Streamed streamed(server.daemon.port(), call_object("count", {{"up_to", 3}}));
    CHECK(streamed.head.status == 200);
    CHECK(streamed.head.header("Content-Type") == "text/event-stream");
    auto messages = streamed.all();
    REQUIRE(messages.size() == 4);
    for (int i = 0; i < 3; ++i) {
        CHECK(messages[i]["method"] == "stream.item");
        CHECK(messages[i]["params"] == Json{{"call", 1}, {"stream", "numbers"}, {"value", i + 1}});
    }
    CHECK(messages[3] == Json{{"jsonrpc", "2.0"}, {"result", 3}, {"id", 1}});
    const Json failing = call_object("tokens", {{"count", 5}, {"width", 2}, {"fail_after", 2}});
    messages = Streamed(server.daemon.port(), failing).all();
    REQUIRE(messages.size() == 3);
    CHECK(messages[1]["params"]["value"]["$tensor"]["data"] == Json{1.0, 1.0});
    CHECK(code_of(messages[2]) == -32000);
}

TEST_CASE("each piece is sent when it is made", "[streams]") {
    const ExampleDaemon server;
    {
        const Json params{{"up_to", 1'000'000}, {"seconds_between", 0.05}};
        Streamed streamed(server.daemon.port(), call_object("count", params));
        for (int i = 1; i <= 3; ++i)
            CHECK(streamed.next()["params"]["value"] == i);
    }
    CHECK(eventually([&] { return server.totals()["streams"]["running"] == 0; }));
}

TEST_CASE("meta of a request cannot undo what an answer of events must hold", "[streams]") {
    const ExampleDaemon server;
    const auto stream_with = [&](const Json& meta) {
        Json request = call_object("tokens", {{"count", 3}, {"width", 2}});
        request["meta"] = meta;
        return Streamed(server.daemon.port(), request).all();
    };
    CHECK(stream_with({{"stream_window", {{"items", 1}, {"bytes", 1}}}}).size() == 4);
    CHECK(stream_with({{"accept", "body, data"}})[0]["params"]["value"]["$tensor"].contains("data"));
    HeaderList headers = kEvents;
    headers.emplace_back("Shared-Tensor-Require", "body");
    CHECK(code_of(respond(server.daemon.port(), "tokens", {{"count", 3}}, headers)) == -32006);
}

TEST_CASE("a function that reads needs a WebSocket and says so", "[streams]") {
    const ExampleDaemon server;
    for (const HeaderList& headers : {HeaderList{}, kEvents}) {
        const Json rejected = respond(server.daemon.port(), "sum_of", nullptr, headers);
        CHECK(code_of(rejected) == -32600);
        CHECK(rejected.dump().find("/ws") != std::string::npos);
    }
    for (const HeaderList& headers : {HeaderList{}, HeaderList{{"Accept", "application/vnd.shared-tensor-stream"}}}) {
        const Json rejected = respond(server.daemon.port(), "count", {{"up_to", 1}}, headers);
        CHECK(code_of(rejected) == -32600);
        CHECK(rejected.dump().find("text/event-stream") != std::string::npos);
    }
    CHECK(code_of(respond(server.daemon.port(), "count", {{"up_to", "x"}}, kEvents)) == -32602);
}

TEST_CASE("a reader of events that stops reading holds no worker and is given up", "[streams]") {
    ExampleDaemon server({"--workers", "1", "--write-timeout", "2s"});
    const Streamed unread(server.daemon.port(), call_object("tokens", {{"count", 1'000'000}, {"width", 60}}));
    const auto running = [&] { return server.totals()["streams"]["running"]; };
    CHECK(eventually([&] { return running() == 1; }));
    CHECK(call(server.daemon.port(), "sleep", {{"seconds", 0.01}}).get<double>() > 0);
    CHECK(eventually([&] { return running() == 0; }));
}

TEST_CASE("what asks for a WebSocket and is none is told what is missing", "[streams]") {
    const ExampleDaemon server;
    const auto get = [&](const HeaderList& headers) {
        HttpPeer peer(server.daemon.port());
        peer.request("GET", "/ws", {}, headers);
        return peer.read();
    };
    HeaderList handshake{{"Connection", "Upgrade"},
                         {"Upgrade", "websocket"},
                         {"Sec-WebSocket-Version", "13"},
                         {"Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="}};
    CHECK(get({}).status == 426);
    CHECK(get(handshake).status == 101);
    CHECK(get(handshake).header("Sec-WebSocket-Accept") == "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    handshake[2].second = "8";
    CHECK(get(handshake).status == 400);
    handshake[2].second = "13";
    handshake.emplace_back("Origin", "http://elsewhere.example");
    CHECK(get(handshake).status == 403);
}

TEST_CASE("a call with an id that is in use is rejected, and the call that uses it goes on", "[streams]") {
    const ExampleDaemon server;
    WebSocketPeer peer(server.daemon.port());
    const Json call = call_object("sum_of", nullptr, 7);
    const auto message = [](const char* method, Json params) {
        params["call"] = 7;
        params["stream"] = "numbers";
        return WebSocketPeer::notification(method, params);
    };
    for (int round = 0; round < 2; ++round) {  // the id of a call that has ended may be used again
        peer.send(call);
        REQUIRE(peer.read()["method"] == "stream.ready");
        constexpr int kRepeated = 20;
        for (int i = 0; i < kRepeated; ++i)
            peer.send_all({call, message("stream.item", {{"value", 1}})});
        peer.send(message("stream.end", Json::object()));
        int rejected = 0;
        Json answer;
        while (!answer.contains("result")) {
            answer = peer.read();
            if (answer.contains("error")) rejected += answer["error"]["code"] == -32600 ? 1 : 0;
        }
        CHECK(rejected == kRepeated);
        CHECK(answer["result"] == kRepeated);
    }
}
