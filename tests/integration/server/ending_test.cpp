// How the daemon ends: in order on SIGTERM, in bounded time, and never without a line. And its log where nobody reads
// it.

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <csignal>
#include <regex>

#include "base/system/unique_fd.hpp"
#include "integration/memory/raw_channel.hpp"
#include "integration/server/shared_daemon.hpp"

using namespace shared_tensor::test;
using Catch::Matchers::ContainsSubstring;

namespace {

Words rough(const Words& options = {}) { return joined(options, {"--load", SHARED_TENSOR_ROUGH_PLUGIN}); }

/// A daemon whose standard error is a pipe, which this test fills and reads as it likes.
class PipedDaemon {
public:
    PipedDaemon() { daemon_.await_ready(); }

    void fill() const {
        const std::string bytes(4096, '.');
        while (::write(pipe_.get(), bytes.data(), bytes.size()) > 0) {
        }
        while (::write(pipe_.get(), ".", 1) > 0) {
        }
    }
    /// What is there now.
    std::string read() const {
        std::string text(1 << 20, '\0');
        const ssize_t got = ::read(pipe_.get(), text.data(), text.size());
        text.resize(static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
        return text;
    }
    int port() const { return daemon_.port(); }
    Daemon& daemon() { return daemon_; }

private:
    std::string make_pipe() const {
        if (::mkfifo(folder_.file("err").c_str(), 0600) != 0) throw std::runtime_error("mkfifo failed");
        return folder_.file("err");
    }

    TemporaryFolder folder_;
    const std::string path_ = make_pipe();
    const shared_tensor::UniqueFd pipe_{::open(path_.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC)};
    Daemon daemon_{rough(), {}, path_};
};

}  // namespace

TEST_CASE("SIGTERM: calls in flight are answered, new ones are rejected, and the daemon ends with 0", "[server]") {
    OwnDaemon daemon({"--drain-time", "8s"});
    PendingCall running = daemon.hold();
    REQUIRE(daemon.until("started"));
    const Json task = daemon.submit("hold", {daemon.name});
    PendingCall result(daemon.port(), "task.result", {{"id", task}, {"timeout_ms", 20'000}});
    REQUIRE(daemon.until("started", 2));
    daemon.child().signal(SIGTERM);
    REQUIRE(eventually([&] { return daemon.code("subtract", {3, 1}) == -32009; }));

    const HttpReply rejected = daemon.hold().reply();
    CHECK(rejected.status == 503);
    CHECK_FALSE(rejected.header("Retry-After").empty());
    CHECK_FALSE(Json::parse(rejected.body)["error"]["data"].contains("may_have_run"));
    CHECK(daemon.code("task.submit", {"hold", {daemon.name}}) == -32009);
    CHECK(daemon.get("/readyz").status == 503);
    CHECK(daemon.get("/healthz").status == 200);

    // Functions are rejected now, inline ones too: the held ones end by the task's cancellation and their deadline.
    CHECK(daemon.call("task.cancel", {task})["state"] == "cancelled");
    CHECK(code_of(result.response()) == -32004);
    CHECK_FALSE(daemon.child().has_ended());
    const Json ended = running.response();  // when the drain time is over
    CHECK(code_of(ended) == -32009);
    CHECK(ended["error"]["data"]["may_have_run"] == true);
    CHECK(daemon.child().wait() == 0);
}

TEST_CASE("a call that ends within the drain time is answered with its result", "[server]") {
    OwnDaemon daemon;
    PendingCall running(daemon.port(), "sleep", {4});
    REQUIRE(eventually([&] { return daemon.totals()["workers"]["busy"] == 1; }));
    daemon.child().signal(SIGTERM);
    CHECK(running.response().contains("result"));
    CHECK(daemon.child().wait() == 0);
}

TEST_CASE("a function that ignores its cancellation does not hold the daemon up, nor after a second SIGTERM",
          "[server]") {
    OwnDaemon daemon({"--drain-time", "1s"}), patient({"--drain-time", "1h"});
    PendingCall running = daemon.hold("hold_deaf"), deaf = patient.hold("hold_deaf");
    REQUIRE(daemon.until("started"));
    REQUIRE(patient.until("started"));
    daemon.child().signal(SIGTERM);
    patient.child().signal(SIGTERM);
    const HttpReply reply = running.reply();
    CHECK(reply.status == 503);
    CHECK(code_of(Json::parse(reply.body)) == -32009);
    CHECK(daemon.child().wait() == 0);
    REQUIRE(eventually([&] { return patient.code("subtract", {3, 1}) == -32009; }));
    patient.child().signal(SIGTERM);
    CHECK(patient.child().wait() == 1);
}

TEST_CASE("SIGINT ends it as SIGTERM does, SIGHUP does not; idle connections do not hold it up", "[server]") {
    OwnDaemon daemon({"--drain-time", "1h"});
    HttpPeer idle(daemon.port()), used(daemon.port());
    used.request("GET", "/healthz");
    CHECK(used.read().status == 200);
    daemon.child().signal(SIGHUP);
    CHECK(daemon.serves());
    daemon.child().signal(SIGINT);
    CHECK(daemon.child().wait() == 0);
    CHECK(idle.closed_by_peer());
}

TEST_CASE("SIGTERM ends a daemon after its drain time, whatever does not end", "[server]") {
    // An inline function, and a function that holds a lock which the end of a process needs.
    for (const char* function : {"never_return_inline", "lock_output_for_ever"}) {
        INFO(function);
        Daemon daemon(rough({"--drain-time", "200ms"}));
        const PendingCall call(daemon.port(), function, Json::array());
        REQUIRE(eventually([&] { return daemon.logs("rough_plugin: has begun"); }));
        CHECK(daemon.stop() == 0);
        CHECK(daemon.logs("did not end in time"));
        CHECK_FALSE(daemon.is_ready());
    }
}

TEST_CASE("SIGTERM ends a daemon that is still starting", "[server]") {
    Daemon daemon(rough(), {"ROUGH_PLUGIN_AT_LOAD=wait"}, "");
    REQUIRE(eventually([&] { return daemon.logs("rough_plugin: wait"); }));
    CHECK(daemon.stop() == 0);
    CHECK(daemon.logs("stopped before it served"));
}

TEST_CASE("code that ends the process is named in a line, the exit code is not 0, and the ready file goes",
          "[server]") {
    struct Case {
        const char *how, *line;
        int code;  // as Child::wait() has it
        bool in_call = true;
        const char* function = "end_process";
    };
    std::vector<Case> cases{{"exit", "exit(0) was called", 1},
                            {"exit", "exit(0) was called", 1, true, "end_process_inline"},
                            {"exit in a thread", "exit(0) was called", 1, false},
                            {"quick_exit", "quick_exit() was called", 1},
                            {"abort", "SIGABRT", 128 + SIGABRT},
                            {"throw in a thread", "SIGABRT", 128 + SIGABRT, false}};
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // they have a report of their own
    cases.push_back({"bad access", "SIGSEGV", 128 + SIGSEGV});
    cases.push_back({"deep recursion", "SIGSEGV", 128 + SIGSEGV});
#endif
    const auto expect_end = [](const Json& request, int code, const std::vector<std::string>& words) {
        Daemon daemon(rough());
        HttpPeer peer(daemon.port());
        peer.request("POST", "/jsonrpc", request.dump(), {{"X-Request-Id", "request-17"}});
        CHECK(daemon.child().wait() == code);
        CHECK_FALSE(daemon.is_ready());
        for (const std::string& word : words)
            CHECK_THAT(daemon.log(), ContainsSubstring(word));
    };
    const std::string caller = ", called by uid:" + std::to_string(::getuid()) + ", ";
    for (const Case& one : cases) {
        INFO(one.how << " in " << one.function);
        const std::string in_call =
            std::string(" in the function ") + one.function + caller + "request request-17, id call-1\n";
        expect_end(call_object(one.function, Json::array({one.how}), "call-1"), one.code,
                   {one.line, one.in_call ? in_call : " outside of any call\n"});
    }
    expect_end(call_object("task.submit", {{"method", "end_process"}, {"params", {"exit"}}}), 1,
               {" in the function end_process" + caller + "request request-17, task "});
}

TEST_CASE("a crash ends the process by its signal while another thread holds the lock of the loader", "[server]") {
    TemporaryFolder folder;
    const std::string copy = folder.write("copy.so", text_of_file(SHARED_TENSOR_ROUGH_PLUGIN));
    Daemon daemon(rough());
    const PendingCall call(daemon.port(), "crash_while_loading", {copy});
    CHECK(daemon.child().wait() == 128 + SIGABRT);
    CHECK_THAT(daemon.log(), ContainsSubstring("ended by SIGABRT") && ContainsSubstring("crash_while_loading"));
    CHECK_FALSE(daemon.is_ready());
}

TEST_CASE("a plugin that calls exit(0) while it is loaded ends the daemon with a line and code 1", "[server]") {
    const Ended ended = run_daemon(rough({"--port", "0"}), {"ROUGH_PLUGIN_AT_LOAD=exit"});
    CHECK(ended.code == 1);
    CHECK_THAT(ended.err, ContainsSubstring("exit(0) was called"));
}

TEST_CASE("a child that a function forks ends by itself: the daemon goes on", "[server]") {
    Daemon daemon(rough());
    CHECK(call(daemon.port(), "exit_code_of_child") == 7);
    CHECK(call(daemon.port(), "server.ping").contains("epoch"));
    CHECK(daemon.is_ready());
    CHECK(daemon.stop() == 0);
}

TEST_CASE("a daemon whose standard error nobody reads serves everybody, and ends on SIGTERM", "[server][log]") {
    PipedDaemon piped;
    const int port = piped.port();
    piped.fill();
    CHECK(call(port, "log_numbered_lines", {"line", 3'000}) == nullptr);
    for (int i = 0; i < 3; ++i) {
        RawChannel malformed(port);
        CHECK(malformed.send("this is no request"));
        while (!malformed.receive().is_null()) {  // an answer, then the end of the channel
        }
    }
    CHECK_FALSE(RawChannel(port).open().empty());
    CHECK(http_request(port, "GET", "/healthz").status == 200);
    CHECK(http_request(port, "GET", "/readyz").status == 200);
    CHECK(call(port, "print_errors", {10'000}) == nullptr);
    CHECK(piped.daemon().stop() == 0);
}

TEST_CASE("log lines that nobody read in time are counted once somebody reads", "[server][log]") {
    PipedDaemon piped;
    piped.fill();
    call(piped.port(), "log_numbered_lines", {"line", 3'000});
    std::string text;
    CHECK(eventually([&] { return (text += piped.read()).find(" line 2999 function=") != std::string::npos; }));
    CHECK_THAT(text, ContainsSubstring(" log lines were dropped: standard error was not read\n"));
    CHECK_FALSE(piped.daemon().child().has_ended());
}

TEST_CASE("a line that is logged again and again is written once, with a count", "[server][log]") {
    Daemon daemon(rough());
    call(daemon.port(), "log_equal_lines", {"the same again", 1'000});
    CHECK(daemon.stop() == 0);
    const std::string text = daemon.log();
    CHECK_THAT(text, ContainsSubstring("warn   the same again function=log_equal_lines principal="));
    CHECK(std::regex_search(text,
                            std::regex("\\(\\d+ more times within 10 s\\) the same again function=log_equal_lines\n")));
    CHECK(std::count(text.begin(), text.end(), '\n') < 20);
}

TEST_CASE("the last lines before the end are in the log, in their order", "[server][log]") {
    Daemon daemon(rough());
    call(daemon.port(), "log_numbered_lines", {"line", 500});
    CHECK(daemon.stop() == 0);
    const std::string text = daemon.log();
    std::size_t at = 0;
    for (int i = 0; i < 500; ++i) {
        at = text.find(" line " + std::to_string(i) + " function=log_numbered_lines ", at);
        REQUIRE(at != std::string::npos);
    }
    CHECK(text.find("info   stopped\n", at) != std::string::npos);
}
