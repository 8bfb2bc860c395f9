// The port for operators.

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "integration/metrics/metrics_page.hpp"
#include "support/forked_child.hpp"

using namespace shared_tensor::test;
using Catch::Matchers::ContainsSubstring;

namespace {

/// A daemon with a port for operators.
struct OperatedDaemon : OwnDaemon {
    explicit OperatedDaemon(const Words& options = {}, const std::string& listen = "127.0.0.1:0",
                            const HeaderList& headers = {})
        : OwnDaemon(joined(options, {"--operations-listen", listen})),
          operations(port_of(call("server.info", nullptr, headers)["operations"])) {}
    int status(const std::string& path, const HeaderList& headers = {}) const {
        return http_request(operations, "GET", path, {}, headers).status;
    }
    static int port_of(const std::string& url) { return std::stoi(url.substr(url.rfind(':') + 1)); }

    const int operations;
};

}  // namespace

TEST_CASE("the port for operators serves three paths, and no calls", "[operations]") {
    const OperatedDaemon daemon;
    CHECK(daemon.operations != daemon.port());
    daemon.call("add", {1, 2});
    CHECK(metrics_of(daemon.operations).calls("add", "ok") == 1);
    CHECK(daemon.status("/healthz") == 200);
    CHECK(daemon.status("/readyz") == 200);
    struct Case {
        const char *method, *path;
        int status;
    };
    for (const Case& one : std::initializer_list<Case>{{"HEAD", "/metrics", 200},
                                                       {"HEAD", "/healthz", 200},
                                                       {"POST", "/metrics", 405},
                                                       {"DELETE", "/healthz", 405},
                                                       {"POST", "/jsonrpc", 404},
                                                       {"GET", "/jsonrpc", 404},
                                                       {"GET", "/ws", 404},
                                                       {"GET", "/openrpc.json", 404},
                                                       {"GET", "/tensors/x", 404},
                                                       {"PUT", "/tensors/x", 404},
                                                       {"GET", "/metrics/", 404},
                                                       {"GET", "/", 404}}) {
        INFO(one.method << ' ' << one.path);
        CHECK(http_request(daemon.operations, one.method, one.path).status == one.status);
    }
    CHECK(http_request(daemon.operations, "POST", "/jsonrpc", call_object("add", {1, 2}).dump()).status == 404);
    CHECK(metrics_of(daemon.operations).calls("add", "ok") == 1);
}

TEST_CASE("it must be named by an address, localhost or a listed host", "[operations]") {
    const OperatedDaemon daemon(
        {"--operations-allowed-host", "gpu-host:9464", "--operations-allowed-host", "gpu-host"});
    for (const char* host : {"127.0.0.1", "127.0.0.1:9464", "10.1.2.3:9464", "[::1]", "[fe80::1]:80", "localhost",
                             "LocalHost:1", "gpu-host", "GPU-host:9464"}) {
        INFO(host);
        CHECK(daemon.status("/metrics", {{"Host", host}}) == 200);
        CHECK(daemon.status("/healthz", {{"Host", host}}) == 200);
    }
    for (const char* host : {"evil.example", "127.0.0.1.evil.example", "localhost.evil.example", "gpu-host:1", "", "[",
                             "[::1", "[x]:80", "::1", "10.1.2.3:x", "10.1.2.3:80x", "1.2.3", "0x7f.0.0.1"}) {
        INFO(host);
        CHECK(daemon.status("/metrics", {{"Host", host}}) == 403);
        CHECK(daemon.status("/readyz", {{"Host", host}}) == 403);
    }
    CHECK(daemon.status("/metrics", {{"Origin", "http://127.0.0.1"}}) == 403);
    // Each port has a list of hosts of its own.
    CHECK(http_request(daemon.port(), "GET", "/healthz", {}, {{"Host", "gpu-host"}}).status == 403);
    CHECK(http_request(daemon.port(), "GET", "/healthz", {}, {{"Host", "10.1.2.3"}}).status == 403);
}

TEST_CASE("another user of the machine reads metrics there, and nothing on the main port", "[operations]") {
    if (::getuid() != 0) SKIP("needs root, to be somebody else");
    const OperatedDaemon daemon;
    const std::string error = error_in_child([&] {
        constexpr uid_t kNobody = 65534;
        expect(::setresgid(kNobody, kNobody, kNobody) == 0 && ::setresuid(kNobody, kNobody, kNobody) == 0, "nobody");
        expect(daemon.status("/metrics") == 200, "metrics");
        expect(daemon.status("/readyz") == 200, "ready");
        expect(http_request(daemon.port(), "GET", "/metrics").status == 403, "main port");
    });
    CHECK(error.empty());
}

TEST_CASE("with a token file metrics need a token, and health needs none", "[operations]") {
    const TokenFile file(token("prometheus"));
    const OperatedDaemon daemon({"--operations-token-file", file.tokens});
    CHECK(daemon.status("/healthz") == 200);
    CHECK(daemon.status("/readyz") == 200);
    const HttpReply without = http_request(daemon.operations, "GET", "/metrics");
    CHECK(without.status == 401);
    CHECK(without.header("WWW-Authenticate") == "Bearer");
    CHECK(daemon.status("/metrics", bearer('x')) == 401);
    CHECK(daemon.status("/metrics", bearer('p')) == 200);
    CHECK(http_request(daemon.port(), "GET", "/metrics").status == 200);  // the daemon's own user, without a token

    file.folder.write("tokens", token("next"));
    CHECK(eventually([&] { return daemon.status("/metrics", bearer('n')) == 200; }));
    CHECK(daemon.status("/metrics", bearer('p')) == 401);
    file.folder.write("tokens", "broken");
    CHECK(eventually([&] { return daemon.logs("the token file for operations changed and cannot be used"); }));
    CHECK(daemon.status("/metrics", bearer('n')) == 200);
}

TEST_CASE("tokens of calls and of operations are not the same", "[operations]") {
    const TokenFile calls(token("calls", ":admin"));
    const OperatedDaemon daemon({"--token-file", calls.tokens}, "127.0.0.1:0", bearer('c'));
    CHECK(daemon.status("/metrics") == 200);  // this port has no tokens
    CHECK(http_request(daemon.port(), "GET", "/metrics").status == 401);
}

TEST_CASE("health is answered there while there are too many connections", "[operations]") {
    const OperatedDaemon daemon({"--operations-connections", "2"});
    HttpPeer first(daemon.operations), second(daemon.operations);
    for (HttpPeer* peer : {&first, &second}) {
        peer->request("GET", "/metrics");
        CHECK(peer->read().status == 200);
    }
    CHECK(daemon.status("/metrics") == 503);
    CHECK(daemon.status("/healthz") == 200);
    CHECK(daemon.serves());  // the main port has connections of its own
    first.close();
    CHECK(eventually([&] { return daemon.status("/metrics") == 200; }));
}

TEST_CASE("while the daemon drains, it says there that it is not ready", "[operations]") {
    OperatedDaemon daemon({"--drain-time", "20s"});
    PendingCall held = daemon.hold();
    REQUIRE(daemon.until("running"));
    daemon.child().signal(SIGTERM);
    CHECK(eventually([&] { return daemon.status("/readyz") == 503; }));
    CHECK(daemon.status("/healthz") == 200);
    const MetricsPage page = metrics_of(daemon.operations);
    CHECK(page["ready"] == 0);
    CHECK(page["workers_busy"] == 1);
    held.hang_up();  // its call is cancelled
    CHECK(daemon.child().wait() == 0);
}

TEST_CASE("worker processes leave the port to their server", "[operations]") {
    const OperatedDaemon daemon({"--processes", "2"});
    daemon.call("echo", {1});
    CHECK(metrics_of(daemon.operations).calls("echo", "ok") == 1);
}

TEST_CASE("an address or a token file that cannot be used ends the start, with the reason", "[operations]") {
    const TokenFile file("prometheus:short\n");
    const int taken = shared_daemon();
    struct Case {
        Words options;
        std::string reason;
    };
    for (const Case& one : std::initializer_list<Case>{
             {{"--operations-listen", "9464"}, "give an address and a port, such as 127.0.0.1:9464"},
             {{"--operations-listen", "127.0.0.1:" + std::to_string(taken)}, "ddress already in use"},
             {{"--operations-listen", "127.0.0.1:0", "--operations-token-file", "/nothing"}, "cannot be read"},
             {{"--operations-listen", "127.0.0.1:0", "--operations-token-file", file.tokens}, "shorter than 16"},
             {{"--operations-connections", "0"}, "must be an integer from 1"},
             {{"--max-metric-values", "0"}, "must be an integer from 1"},
         }) {
        INFO(one.reason);
        const Ended ended = run_daemon(joined({"--port", "0"}, one.options));
        CHECK(ended.code == 1);
        CHECK_THAT(ended.err, ContainsSubstring(one.reason));
    }
}
