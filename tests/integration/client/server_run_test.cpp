#include <signal.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <future>
#include <stdexcept>
#include <thread>

#include <shared_tensor/async_client.hpp>
#include <shared_tensor/server.hpp>

#include "support/daemon.hpp"

using namespace shared_tensor;
using namespace shared_tensor::test;

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
