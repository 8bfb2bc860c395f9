// Servers that are not there, die, hang or are told to end.

#include <signal.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <csignal>
#include <future>
#include <stdexcept>
#include <thread>

#include <shared_tensor/async_client.hpp>
#include <shared_tensor/server.hpp>

#include "example_daemon.hpp"

using namespace shared_tensor::test;
using namespace shared_tensor;
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
        (void)eventually([&] { return server.totals()["workers"]["busy"] == 1; });
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

namespace {

void (*handler_of_sigterm())(int) {
    struct sigaction now {};
    ::sigaction(SIGTERM, nullptr, &now);
    return now.sa_handler;
}

}  // namespace

TEST_CASE("Server::run() serves until a signal, answers what is in flight and puts the signals back", "[client]") {
    TemporaryFolder folder;
    std::promise<void> is_running, may_end;
    Registry registry;
    registry.add("wait", [&] {
        is_running.set_value();
        may_end.get_future().wait();
        return 7;
    });
    ServerOptions options;
    options.host = "";
    options.unix_socket = folder.file("socket");
    options.local_socket = "none";
    Server server(std::move(registry), options);
    auto* const before = handler_of_sigterm();
    auto clean = std::async(std::launch::async, [&] { return server.run(); });

    AsyncOptions waiting;
    waiting.client.url = server.url();
    waiting.client.wait_for_server = std::chrono::seconds(20);
    const AsyncClient client(waiting);
    auto answer = client.call<int>("wait");
    is_running.get_future().wait();

    Server other(Registry(), options);
    CHECK_THROWS_AS(other.run(), std::logic_error);
    ::kill(::getpid(), SIGTERM);
    while (handler_of_sigterm() != before)
        std::this_thread::yield();
    may_end.set_value();
    CHECK(answer.get() == 7);
    CHECK(clean.get());
}
