#include <catch2/catch_test_macros.hpp>

#include "integration/server/shared_daemon.hpp"

using namespace shared_tensor::test;

namespace {

struct Answer {
    int status, code;
};

Answer ping(int port, const HeaderList& headers) {
    const HttpReply reply = post(port, call_object("server.ping", nullptr).dump(), headers);
    const Json body = Json::parse(reply.body);
    CHECK((reply.status == 200 || body["id"] == nullptr));
    CHECK((reply.status == 200 || reply.head.find("Access-Control") == std::string::npos));
    return {reply.status, code_of(body)};
}

bool rejected(Answer answer, int status) { return answer.status == status && answer.code == -32007; }

}  // namespace

TEST_CASE("a foreign Host is rejected: names that were bound again to loopback", "[server]") {
    const int port = shared_daemon();
    const std::string own = ":" + std::to_string(port);
    for (const std::string& host : {"127.0.0.1" + own, "localhost" + own, "LocalHost" + own, "[::1]" + own}) {
        INFO(host);
        CHECK(ping(port, {{"Host", host}}).status == 200);
    }
    for (const std::string& host :
         {std::string("evil.example"), "evil.example" + own, std::string("127.0.0.1"), std::string("127.0.0.1:1"),
          "127.0.0.1.evil.example" + own, "localhost" + own + "0", std::string("")}) {
        INFO(host);
        CHECK(rejected(ping(port, {{"Host", host}}), 403));
    }
}

TEST_CASE("every path and method has the same check of Host", "[server]") {
    const int port = shared_daemon();
    for (const auto& [method, path] : {std::pair{"GET", "/healthz"},
                                       {"GET", "/openrpc.json"},
                                       {"POST", "/nowhere"},
                                       {"OPTIONS", "/jsonrpc"},
                                       {"DELETE", "/"}}) {
        HttpPeer peer(port);
        peer.request(method, path, "", {{"Host", "evil.example"}});
        CHECK(peer.read().status == 403);
    }
}

TEST_CASE("any Origin is foreign unless it is allowed", "[server]") {
    CHECK(rejected(ping(shared_daemon(), {{"Origin", "http://evil.example"}}), 403));
    CHECK(rejected(ping(shared_daemon(), {{"Origin", "null"}}), 403));
    CHECK(rejected(ping(shared_daemon(), {{"Origin", "http://127.0.0.1:" + std::to_string(shared_daemon())}}), 403));
    Daemon daemon({"--allowed-origin", "https://ours.example", "--allowed-host", "proxy.example"});
    CHECK(ping(daemon.port(), {{"Origin", "https://ours.example"}}).status == 200);
    CHECK(rejected(ping(daemon.port(), {{"Origin", "https://ours.example.evil"}}), 403));
    CHECK(ping(daemon.port(), {{"Host", "proxy.example"}}).status == 200);
}

TEST_CASE("two Host headers are no Host", "[server]") {
    const int port = shared_daemon();
    HttpPeer peer(port);
    peer.send("POST /jsonrpc HTTP/1.1\r\nHost: 127.0.0.1:" + std::to_string(port) +
              "\r\nHost: evil.example\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}");
    const int status = peer.read().status;
    CHECK((status == 400 || status == 403));
}

TEST_CASE("with a token file every request needs a token", "[server]") {
    TemporaryFolder folder;
    const std::string secret(32, 'a'), other(32, 'b');
    const std::string file = folder.write("tokens", "# who\nadmin:" + secret + ":admin\nguest:" + other + "\n");
    Daemon daemon(with_plugins({"--token-file", file}));
    const int port = daemon.port();
    const HeaderList admin{{"Authorization", "Bearer " + secret}}, guest{{"Authorization", "bearer " + other}};

    SECTION("none, a wrong one, another scheme") {
        CHECK(rejected(ping(port, {}), 401));
        CHECK(rejected(ping(port, {{"Authorization", "Bearer " + std::string(32, 'c')}}), 401));
        CHECK(rejected(ping(port, {{"Authorization", "Bearer "}}), 401));
        CHECK(rejected(ping(port, {{"Authorization", "Basic " + secret}}), 401));
        CHECK(rejected(ping(port, {{"Authorization", secret}}), 401));
        HttpPeer peer(port);
        peer.request("GET", "/healthz");
        const HttpReply reply = peer.read();
        CHECK(reply.status == 401);
        CHECK(reply.header("WWW-Authenticate") == "Bearer");
    }
    SECTION("it is checked on the headers: the body is not waited for") {
        HttpPeer peer(port);
        peer.send("POST /jsonrpc HTTP/1.1\r\nHost: 127.0.0.1:" + std::to_string(port) +
                  "\r\nContent-Type: application/json\r\nContent-Length: 1000000\r\n\r\n");
        CHECK(peer.read().status == 401);
    }
    SECTION("everyone sees and ends only their own, an admin all") {
        CHECK(ping(port, admin).status == 200);
        CHECK(ping(port, guest).status == 200);
        const std::string name = fresh_name();
        const Json id = call(port, "task.submit", {"hold", {name}}, admin)["id"];
        CHECK(call(port, "task.list", nullptr, guest)["tasks"].empty());
        for (const char* method : {"task.get", "task.wait", "task.result", "task.cancel"})
            CHECK(call_code(port, method, {id}, guest) == -32005);
        const Json theirs = call(port, "task.submit", {"hold", {name}}, guest)["id"];
        CHECK(call(port, "task.list", nullptr, admin)["tasks"].size() == 2);
        CHECK(call(port, "task.cancel", {theirs}, admin)["state"] == "cancelled");
        CHECK(call_code(port, "cache.clear", nullptr, guest) == -32007);
        const Json session = call(port, "session.open", nullptr, admin)["session"];
        HeaderList stolen = guest;
        stolen.emplace_back("Shared-Tensor-Session", session);
        CHECK(call_code(port, "server.ping", nullptr, stolen) == -32005);
    }
    SECTION("tokens are in no log") {
        ping(port, admin);
        daemon.stop();
        CHECK(daemon.log().find(secret) == std::string::npos);
    }
}

TEST_CASE("another user of the machine is rejected on loopback", "[server]") {
    if (::getuid() != 0) SKIP("needs root, to be somebody else");
    const int port = shared_daemon();
    const pid_t child = ::fork();
    if (child == 0) {
        int code = 1;
        try {
            constexpr uid_t kNobody = 65534;
            if (::setresgid(kNobody, kNobody, kNobody) == 0 && ::setresuid(kNobody, kNobody, kNobody) == 0)
                code = post(port, call_object("server.ping", nullptr).dump()).status == 403 ? 0 : 2;
        } catch (...) {
            code = 3;
        }
        ::_exit(code);
    }
    int status = -1;
    REQUIRE(::waitpid(child, &status, 0) == child);
    CHECK(status == 0);
}
