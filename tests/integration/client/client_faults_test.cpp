#include <catch2/catch_test_macros.hpp>
#include <csignal>
#include <future>
#include <thread>

#include "example_daemon.hpp"
#include "support/rpc.hpp"

using namespace shared_tensor;
using namespace shared_tensor::test;
using std::chrono::milliseconds;

TEST_CASE("A server that is not there is a failure of transport that ran nothing", "[client]") {
    ClientOptions options;
    options.url = "http://127.0.0.1:1";
    options.retry = no_retry();
    try {
        Client(options).call("f");
        FAIL("no error");
    } catch (const TransportFailure& failure) {
        CHECK_FALSE(failure.may_have_run());
    }
}

TEST_CASE("A server that dies during a call is a failure that may have run", "[client]") {
    ExampleDaemon server;
    const Client client = server.client();
    std::jthread killer([&] {
        (void)eventually([&] { return call(server.daemon.port(), "server.info")["totals"]["workers"]["busy"] == 1; });
        server.daemon.child().signal(SIGKILL);
    });
    try {
        client.call("sleep", 30);
        FAIL("no error");
    } catch (const TransportFailure& failure) {
        CHECK(failure.may_have_run());
    }
}

TEST_CASE("A call waits for a server that starts later", "[client]") {
    TemporaryFolder folder;
    const std::string path = folder.file("socket");
    ClientOptions options;
    options.url = "unix:" + path;
    options.wait_for_server = std::chrono::seconds(30);
    options.retry = no_retry();
    auto sum = std::async(std::launch::async, [&] { return Client(options).call<double>("add", 1, 2); });
    const ExampleDaemon server(Words{"--unix-socket", path});
    CHECK(sum.get() == 3);
}

TEST_CASE("A stopped server is given up at the deadline", "[client]") {
    ExampleDaemon server;
    const Client client = server.client();
    client.ping();
    server.daemon.child().freeze();
    CallOptions options;
    options.timeout = milliseconds(200);
    CHECK_THROWS_AS(client.with(options).call("add", 1, 2), DeadlineExceeded);
    server.daemon.child().signal(SIGCONT);
    CHECK(client.call<double>("add", 1, 2) == 3);
}
