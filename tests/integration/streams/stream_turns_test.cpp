// Streams whose sides take turns, item by item: the threads that wait read the socket themselves.

#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <csignal>
#include <functional>
#include <thread>

#include <shared_tensor/client.hpp>

#include "../client/example_daemon.hpp"
#include "base/concurrency/at_end.hpp"
#include "support/rpc.hpp"

using namespace shared_tensor;
using namespace shared_tensor::test;
using namespace std::chrono_literals;

namespace {

/// Takes turns with "running_sum" for ever, or until something is thrown; what wraps `meanwhile` runs beside it once
/// it has begun.
void take_turns(StreamCall<double>& call, const std::function<void()>& meanwhile) {
    std::atomic<int> turns{0};
    std::atomic<bool> over{false};
    std::jthread beside([&] {
        if (eventually([&] { return turns > 500 || over; }) && !over) meanwhile();
    });
    const AtEnd ends([&] { over = true; });
    auto numbers = call.writer<double>();
    auto sums = call.reader<double>();
    for (int i = 1;; ++i) {
        if (!numbers.write(1)) throw std::logic_error("the function reads no more");
        if (sums.next() != i) throw std::logic_error("a wrong sum");
        turns = i;
    }
}

}  // namespace

TEST_CASE("a call that is cancelled while its sides take turns ends at once", "[client][streams]") {
    const ExampleDaemon server;
    auto call = server.client().stream<double>("running_sum");
    CHECK_THROWS_AS(take_turns(call, [&] { call.cancel(); }), Cancelled);
    CHECK_THROWS_AS(call.result(), Cancelled);
    CHECK(eventually([&] { return server.totals()["streams"]["running"] == 0; }));
}

TEST_CASE("a deadline ends a call whose sides take turns", "[client][streams]") {
    const ExampleDaemon server;
    auto call = server.client().with({.timeout = 2s}).stream<double>("running_sum");
    CHECK_THROWS_AS(take_turns(call, [] {}), DeadlineExceeded);
}

TEST_CASE("a server that is killed ends a call whose sides take turns", "[client][streams]") {
    ExampleDaemon server;
    auto call = server.client().stream<double>("running_sum");
    CHECK_THROWS_AS(take_turns(call, [&] { server.daemon.child().signal(SIGKILL); }), TransportFailure);
}

TEST_CASE("a server that stops lets a call whose sides take turns go on and then cuts it off", "[client][streams]") {
    ExampleDaemon server({"--drain-time", "300ms"});
    auto call = server.client().stream<double>("running_sum");
    CHECK_THROWS_AS(take_turns(call, [&] { server.daemon.child().signal(SIGTERM); }), ShuttingDown);
    CHECK(server.daemon.child().wait() == 0);
}

TEST_CASE("a client that is shut down fails a call whose sides take turns", "[client][streams]") {
    const ExampleDaemon server;
    const Client client = server.client();
    auto call = client.stream<double>("running_sum");
    CHECK_THROWS_AS(take_turns(call, [&] { client.shutdown(); }), TransportFailure);
}

TEST_CASE("calls end as soon as their sides have taken their turns", "[client][streams]") {
    const ExampleDaemon server;
    for (int i = 0; i < 200; ++i) {
        auto call = server.client().stream<double>("running_sum");
        auto numbers = call.writer<double>();
        auto sums = call.reader<double>();
        for (int turn = 1; turn <= 10 + i % 3; ++turn) {
            REQUIRE(numbers.write(1));
            REQUIRE(sums.next() == turn);
        }
        numbers.end();
        if (i % 2 == 0) REQUIRE_FALSE(sums.next());
        REQUIRE(call.result() == 10 + i % 3);
    }
}

TEST_CASE("a window that is full in the middle of turns is emptied", "[client][streams]") {
    const ExampleDaemon server;  // whose window is 1024
    ClientOptions options;
    options.url = server.url();
    options.stream_window.items = 16;
    const Client client(options);
    auto call = client.stream<double>("running_sum");
    auto numbers = call.writer<double>();
    auto sums = call.reader<double>();
    double sum = 0;
    for (int round = 0; round < 30; ++round) {
        for (int turn = 0; turn < 10; ++turn) {
            REQUIRE(numbers.write(1));
            REQUIRE(sums.next() == ++sum);
        }
        std::jthread writes([&] {
            for (int i = 0; i < 1'500; ++i)
                numbers.write(1);
        });
        for (int i = 0; i < 1'500; ++i)
            REQUIRE(sums.next() == ++sum);
    }
    numbers.end();
    CHECK(call.result() == sum);
}
