#include <catch2/catch_test_macros.hpp>

#include "integration/server/shared_daemon.hpp"

using namespace shared_tensor::test;

TEST_CASE("whatever a function throws is an error of that call alone", "[server]") {
    const int port = shared_daemon();
    SECTION("an exception: its type and text, made valid UTF-8") {
        const Json error = respond(port, "throw_error")["error"];
        CHECK(error["code"] == -32000);
        CHECK(error["data"]["type"] == "std::out_of_range");
        CHECK(error["data"]["message"] == "beyond the end \xEF\xBF\xBD");
    }
    SECTION("no exception") { CHECK(call_code(port, "throw_int") == -32000); }
    SECTION("no memory") { CHECK(call_code(port, "throw_bad_alloc") == -32008); }
    SECTION("more than a string holds") { CHECK(call_code(port, "huge") != 0); }
    CHECK(call(port, "add", {1, 2}) == 3.0);
}

TEST_CASE("a text of an error ends after 4096 bytes, and says that it was cut", "[server]") {
    const int port = shared_daemon();
    SECTION("of an exception") {
        const HttpReply reply = post(port, call_object("throw_text", {100'000'000}).dump());
        CHECK(reply.body.size() < 5000);
        const std::string message = Json::parse(reply.body)["error"]["data"]["message"];
        CHECK(message.size() == 4096);
        CHECK(message.ends_with("x ... (cut: the text has 100000000 bytes)"));
        CHECK(respond(port, "throw_text", {4096})["error"]["data"]["message"] == std::string(4096, 'x'));
    }
    SECTION("of a task") {
        const Json failed = call(port, "task.submit", {"throw_text", {100'000}});
        CHECK(call(port, "task.wait", {failed["id"]})["error"]["data"]["message"].get<std::string>().size() == 4096);
    }
    SECTION("of a request") {
        const Json error = respond(port, std::string(100'000, 'm'))["error"];
        CHECK(error["code"] == -32601);
        CHECK(error["data"]["method"].get<std::string>().size() == 4096);
    }
    CHECK(call(port, "add", {1, 2}) == 3.0);
}

TEST_CASE("an exception whose what() is null is an error with its type", "[server]") {
    const Json error = respond(shared_daemon(), "throw_no_text")["error"];
    CHECK(error["code"] == -32000);
    CHECK(error["data"]["type"].get<std::string>().find("NoText") != std::string::npos);
    CHECK(error["data"]["message"] == "the exception has no text: its what() is null");
}

TEST_CASE("stacks and lists of kernels go to the log at debug level, not to the caller", "[server]") {
    Daemon daemon(with_plugins({"--log-level", "debug"}));
    CHECK(respond(daemon.port(), "throw_with_stack")["error"]["data"]["message"] == "no such kernel");
    const auto logged = [&](const char* words) { return daemon.log().find(words) != std::string::npos; };
    CHECK(eventually([&] { return logged("throw_with_stack threw std::runtime_error"); }));
    CHECK(eventually([&] { return logged("registered at RegisterCPU.cpp:1"); }));
}

TEST_CASE("bad input of the transport gets its status and a JSON-RPC error", "[server]") {
    const int port = shared_daemon();
    HttpPeer peer(port);
    int status = 0;
    SECTION("another content type") {
        peer.request("POST", "/jsonrpc", "{}", {{"Content-Type", "text/plain"}});
        status = 415;
    }
    SECTION("no content type") {
        peer.request("POST", "/jsonrpc", "{}", {{"Content-Type", ""}});
        status = 415;
    }
    SECTION("another path") {
        peer.request("POST", "/rpc", "{}");
        status = 404;
    }
    SECTION("another path by GET") {
        peer.request("GET", "/");
        status = 404;
    }
    SECTION("GET where POST is due") {
        peer.request("GET", "/jsonrpc");
        status = 405;
    }
    SECTION("POST where GET is due") {
        peer.request("POST", "/healthz", "{}");
        status = 405;
    }
    SECTION("no length") {
        peer.send("POST /jsonrpc HTTP/1.1\r\nHost: 127.0.0.1:" + std::to_string(port) +
                  "\r\nContent-Type: application/json\r\n\r\n");
        status = 411;
    }
    SECTION("a header line beyond 8 KiB") {
        peer.request("POST", "/jsonrpc", "{}", {{"X", std::string(9000, 'x')}});
        status = 431;
    }
    SECTION("more than 100 headers") {
        HeaderList headers;
        for (int i = 0; i < 101; ++i)
            headers.emplace_back("X" + std::to_string(i), "1");
        peer.request("POST", "/jsonrpc", "{}", headers);
        status = 431;
    }
    SECTION("a body beyond its bound") {
        peer.send("POST /jsonrpc HTTP/1.1\r\nHost: 127.0.0.1:" + std::to_string(port) +
                  "\r\nContent-Type: application/json\r\nContent-Length: 99999999999\r\n\r\n");
        status = 413;
    }
    const HttpReply reply = peer.read();
    CHECK(reply.status == status);
    const Json body = Json::parse(reply.body);
    CHECK(body["id"] == nullptr);
    CHECK(body["error"]["code"] == -32600);
    CHECK((reply.status == 405) == !reply.header("Allow").empty());
    CHECK(call(port, "add", {1, 2}) == 3.0);
}

TEST_CASE("HEAD tells what GET would, without a body", "[server]") {
    for (const char* path : {"/healthz", "/readyz", "/openrpc.json"}) {
        HttpPeer peer(shared_daemon());
        peer.request("HEAD", path);
        const HttpReply head = peer.read(false);
        peer.request("GET", path);
        const HttpReply get = peer.read();
        CHECK(head.status == 200);
        CHECK(head.header("Content-Length") == std::to_string(get.body.size()));
    }
}

TEST_CASE("a GET with a body is rejected or answered, and the connection is not out of step", "[server]") {
    const int port = shared_daemon();
    HttpPeer peer(port);
    peer.request("GET", "/healthz", "surprise");
    const HttpReply reply = peer.read();
    CHECK((reply.status == 200 || reply.status == 413 || reply.status == 400));
    CHECK(call(port, "add", {1, 2}) == 3.0);
}

TEST_CASE("texts that break parsers are parse errors with status 200", "[server]") {
    const int port = shared_daemon();
    const std::string deep(200, '[');
    for (const std::string& text : {std::string(), std::string("{"), deep, deep + std::string(200, ']'),
                                    std::string(R"({"jsonrpc":"2.0","id":1e999})"), std::string("\xFF\xFE")}) {
        const HttpReply reply = post(port, text);
        CHECK(reply.status == 200);
        CHECK(code_of(Json::parse(reply.body)) == -32700);
    }
}

TEST_CASE("errors show no path and no address", "[server]") {
    const int port = shared_daemon();
    for (const std::string& text : {call_object("fail", {"x"}).dump(), call_object("nowhere", nullptr).dump(),
                                    call_object("scale", {1}).dump(), std::string("{")}) {
        const std::string body = post(port, text).body;
        CHECK(body.find(".cpp") == std::string::npos);
        CHECK(body.find("0x") == std::string::npos);
        CHECK(body.find(kBuildFolder) == std::string::npos);
    }
}
