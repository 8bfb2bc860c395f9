// Who gets in.

#include <catch2/catch_test_macros.hpp>

#include "integration/server/shared_daemon.hpp"
#include "support/forked_child.hpp"

using namespace shared_tensor::test;

namespace {

/// The status of a ping. A rejection answers no request, has the code of a missing permission, and says nothing of
/// CORS.
int ping(int port, const HeaderList& headers) {
    const HttpReply reply = post(port, call_object("server.ping", nullptr).dump(), headers);
    const Json body = Json::parse(reply.body);
    if (reply.status != 200) {
        CHECK(body["id"] == nullptr);
        CHECK(code_of(body) == -32007);
        CHECK(reply.head.find("Access-Control") == std::string::npos);
    }
    return reply.status;
}

/// The head of a POST /jsonrpc up to its last line.
std::string post_head(int port, const std::string& more) {
    return "POST /jsonrpc HTTP/1.1\r\nHost: 127.0.0.1:" + std::to_string(port) +
           "\r\nContent-Type: application/json\r\n" + more + "\r\n\r\n";
}

}  // namespace

TEST_CASE("a foreign Host is rejected: names that were bound again to loopback", "[server]") {
    const int port = shared_daemon();
    const std::string own = ":" + std::to_string(port);
    for (const std::string& host : {"127.0.0.1" + own, "localhost" + own, "LocalHost" + own, "[::1]" + own}) {
        INFO(host);
        CHECK(ping(port, {{"Host", host}}) == 200);
    }
    for (const std::string& host :
         {std::string("evil.example"), "evil.example" + own, std::string("127.0.0.1"), std::string("127.0.0.1:1"),
          "127.0.0.1.evil.example" + own, "localhost" + own + "0", std::string("")}) {
        INFO(host);
        CHECK(ping(port, {{"Host", host}}) == 403);
    }
    for (const auto& [method, path] : {std::pair{"GET", "/healthz"},
                                       {"GET", "/openrpc.json"},
                                       {"POST", "/nowhere"},
                                       {"OPTIONS", "/jsonrpc"},
                                       {"DELETE", "/"}}) {
        INFO(method << ' ' << path);
        CHECK(http_request(port, method, path, "", {{"Host", "evil.example"}}).status == 403);
    }
    HttpPeer two_hosts(port);
    two_hosts.send(post_head(port, "Host: evil.example\r\nContent-Length: 2") + "{}");
    const int status = two_hosts.read().status;
    CHECK((status == 400 || status == 403));
    const Daemon daemon({"--allowed-host", "proxy.example"});
    CHECK(ping(daemon.port(), {{"Host", "proxy.example"}}) == 200);
}

TEST_CASE("with a token file every request needs a token", "[server]") {
    TokenDaemon daemon("# who\n" + token("admin", ":admin") + token("guest"));
    const int port = daemon.port();
    const HeaderList admin = bearer('a'), guest{{"Authorization", "bearer " + secret_of('g')}};
    CHECK(ping(port, admin) == 200);
    CHECK(ping(port, guest) == 200);

    SECTION("none, a wrong one, another scheme") {
        CHECK(ping(port, {}) == 401);
        for (const std::string& value :
             {"Bearer " + secret_of('c'), std::string("Bearer "), "Basic " + secret_of('a'), secret_of('a')})
            CHECK(ping(port, {{"Authorization", value}}) == 401);
        const HttpReply reply = daemon.get("/healthz");
        CHECK(reply.status == 401);
        CHECK(reply.header("WWW-Authenticate") == "Bearer");
    }
    SECTION("it is checked on the headers: the body is not waited for") {
        HttpPeer peer(port);
        peer.send(post_head(port, "Content-Length: 1000000"));
        CHECK(peer.read().status == 401);
    }
    SECTION("everyone sees and ends only their own, an admin all") {
        const Json hold = {"hold", {daemon.name}};
        const Json id = daemon.call("task.submit", hold, admin)["id"];
        CHECK(daemon.call("task.list", nullptr, guest)["tasks"].empty());
        for (const char* method : {"task.get", "task.wait", "task.result", "task.cancel"})
            CHECK(daemon.code(method, {id}, guest) == -32005);
        const Json theirs = daemon.call("task.submit", hold, guest)["id"];
        CHECK(daemon.call("task.list", nullptr, admin)["tasks"].size() == 2);
        CHECK(daemon.call("task.cancel", {theirs}, admin)["state"] == "cancelled");
        CHECK(daemon.code("cache.clear", nullptr, guest) == -32007);
        HeaderList stolen = guest;
        stolen.emplace_back("Shared-Tensor-Session", daemon.call("session.open", nullptr, admin)["session"]);
        CHECK(daemon.code("server.ping", nullptr, stolen) == -32005);
    }
    SECTION("everyone lists and cancels only their own calls, an admin all") {
        PendingCall of_guest = daemon.hold("hold_cached", guest), of_admin = daemon.hold("hold_cached", admin);
        // Equal calls of two principals are two runs.
        REQUIRE(eventually([&] { return daemon.call("runs_of", {daemon.name}, admin)["started"] == 2; }));
        const auto calls_of = [&](const HeaderList& who) { return daemon.call("server.calls", nullptr, who); };
        REQUIRE(calls_of(guest)["total"] == 1);
        const Json all = calls_of(admin);
        CHECK(all["total"] == 2);
        std::string own, other;
        for (const Json& one : all["calls"])
            (one["owner"] == "token:guest" ? own : other) = one["id"];
        CHECK(daemon.code("server.cancel_call", {other}, guest) == -32005);
        CHECK(daemon.call("server.cancel_call", {own}, guest)["cancelled"] == own);
        CHECK(code_of(of_guest.response()) == -32004);
        CHECK(calls_of(admin)["total"] == 1);
        daemon.call("release", {daemon.name}, admin);
        CHECK(of_admin.response().contains("result"));
    }
    SECTION("tokens are in no log") {
        daemon.stop();
        CHECK_FALSE(daemon.logs(secret_of('a')));
    }
}

TEST_CASE("with --insecure all clients over TCP are one principal, which is no admin", "[server]") {
    const OwnDaemon daemon({"--insecure", "--host", "0.0.0.0"});
    PendingCall held = daemon.hold();
    REQUIRE(daemon.until("started"));
    const Json calls = daemon.call("server.calls")["calls"];
    REQUIRE(calls.size() == 1);
    CHECK(calls[0]["owner"] == "anyone");
    CHECK(daemon.code("cache.clear") == -32007);
    daemon.call("server.cancel_call", {calls[0]["id"]});
    CHECK(code_of(held.response()) == -32004);
}

TEST_CASE("another user of the machine is rejected on loopback", "[server]") {
    if (::getuid() != 0) SKIP("needs root, to be somebody else");
    const int port = shared_daemon();
    const std::string error = error_in_child([port] {
        constexpr uid_t kNobody = 65534;
        expect(::setresgid(kNobody, kNobody, kNobody) == 0 && ::setresuid(kNobody, kNobody, kNobody) == 0, "nobody");
        expect(post(port, call_object("server.ping", nullptr).dump()).status == 403, "403");
    });
    CHECK(error.empty());
}
