// How the daemon ends where something of it does not: by SIGTERM in bounded time, and never without a line.

#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <csignal>

#include "integration/server/rough_daemon.hpp"
#include "integration/server/shared_daemon.hpp"

using namespace shared_tensor::test;
using Catch::Matchers::ContainsSubstring;

TEST_CASE("SIGTERM ends a daemon after its drain time, whatever does not end", "[server]") {
    RoughDaemon daemon({"--drain-time", "200ms"});
    const int port = daemon.port();
    const char* function = nullptr;
    SECTION("an inline function") { function = "never_return_inline"; }
    SECTION("a function that holds a lock which the end of a process needs") { function = "lock_output_for_ever"; }
    const PendingCall call(port, function, Json::array());
    REQUIRE(eventually([&] { return daemon.log().find("rough_plugin: has begun") != std::string::npos; }));
    daemon.child().signal(SIGTERM);
    CHECK(daemon.child().wait() == 0);
    CHECK_THAT(daemon.log(), ContainsSubstring("did not end in time"));
    CHECK_FALSE(daemon.is_ready());
}

TEST_CASE("SIGTERM ends a daemon that is still starting", "[server]") {
    RoughDaemon daemon({}, {"ROUGH_PLUGIN_AT_LOAD=wait"});
    REQUIRE(eventually([&] { return daemon.log().find("rough_plugin: wait") != std::string::npos; }));
    daemon.child().signal(SIGTERM);
    CHECK(daemon.child().wait() == 0);
    CHECK_THAT(daemon.log(), ContainsSubstring("stopped before it served"));
}

TEST_CASE("code that ends the process is named in a line, the exit code is not 0, and the ready file goes",
          "[server]") {
    struct TransportKind {
        const char *how, *line;
        int code;  // as Child::wait() has it
        bool in_call = true;
        const char* function = "end_process";
    };
    std::vector<TransportKind> transports{{"exit", "exit(0) was called", 1},
                                          {"exit", "exit(0) was called", 1, true, "end_process_inline"},
                                          {"exit in a thread", "exit(0) was called", 1, false},
                                          {"quick_exit", "quick_exit() was called", 1},
                                          {"abort", "SIGABRT", 128 + SIGABRT},
                                          {"throw in a thread", "SIGABRT", 128 + SIGABRT, false}};
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // they have a report of their own
    transports.push_back({"bad access", "SIGSEGV", 128 + SIGSEGV});
    transports.push_back({"deep recursion", "SIGSEGV", 128 + SIGSEGV});
#endif
    for (const TransportKind& transport : transports) {
        INFO(transport.how << " in " << transport.function);
        RoughDaemon daemon;
        HttpPeer peer(daemon.port());
        peer.request("POST", "/jsonrpc",
                     call_object(transport.function, Json::array({transport.how}), "request-17").dump());
        CHECK(daemon.child().wait() == transport.code);
        CHECK_FALSE(daemon.is_ready());
        CHECK_THAT(daemon.log(), ContainsSubstring(transport.line));
        const std::string in_call = std::string(" in the function ") + transport.function +
                                    ", called by uid:" + std::to_string(::getuid()) + ", request request-17\n";
        CHECK_THAT(daemon.log(), ContainsSubstring(transport.in_call ? in_call : " outside of any call\n"));
    }
}

TEST_CASE("a task that ends the process is named too", "[server]") {
    RoughDaemon daemon;
    HttpPeer peer(daemon.port());
    peer.request("POST", "/jsonrpc",
                 call_object("task.submit", {{"method", "end_process"}, {"params", {"exit"}}}).dump());
    CHECK(daemon.child().wait() == 1);
    CHECK_THAT(daemon.log(), ContainsSubstring(" in the function end_process, called by uid:"));
    CHECK_THAT(daemon.log(), ContainsSubstring(", task "));
}

TEST_CASE("a plugin that calls exit(0) while it is loaded ends the daemon with a line and code 1", "[server]") {
    const Ended ended = run_daemon(with_rough_plugin({"--port", "0"}), {"ROUGH_PLUGIN_AT_LOAD=exit"});
    CHECK(ended.code == 1);
    CHECK_THAT(ended.err, ContainsSubstring("exit(0) was called"));
}

TEST_CASE("a child that a function forks ends by itself: the daemon goes on", "[server]") {
    RoughDaemon daemon;
    const int port = daemon.port();
    CHECK(call(port, "exit_code_of_child") == 7);
    CHECK(call(port, "server.ping").contains("epoch"));
    CHECK(daemon.is_ready());
    daemon.child().signal(SIGTERM);
    CHECK(daemon.child().wait() == 0);
}
