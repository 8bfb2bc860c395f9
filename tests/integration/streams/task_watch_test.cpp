// Progress and ends of tasks, told by the server.

#include <catch2/catch_test_macros.hpp>
#include <future>
#include <mutex>
#include <vector>

#include <shared_tensor/async_client.hpp>
#include <shared_tensor/client.hpp>

#include "integration/client/example_daemon.hpp"
#include "support/rpc.hpp"

using namespace shared_tensor;
using namespace shared_tensor::test;
using namespace std::chrono_literals;

namespace {

std::int64_t requests(const ExampleDaemon& server) { return server.totals()["requests"].get<std::int64_t>(); }

}  // namespace

TEST_CASE("a task is watched without being asked for", "[client][streams]") {
    const ExampleDaemon server;
    const Client client = server.client();
    auto task = client.submit<double>("sleep", 3.0);
    std::vector<double> seen;
    task.on_progress([&](const TaskStatus& status) { seen.push_back(status.fraction.value_or(0)); });
    const std::int64_t before = requests(server);
    CHECK(task.get() >= 3.0);
    CHECK(requests(server) - before <= 4);  // the WebSocket, task.result, and our own question
    CHECK(seen.size() > 10);                // the function reports every 50 ms
    CHECK(std::is_sorted(seen.begin(), seen.end()));
    CHECK(seen.back() == 1.0);
}

TEST_CASE("an AsyncClient hears of its tasks without asking", "[client][streams]") {
    const ExampleDaemon server;
    const AsyncClient client(server.url());
    std::vector<AsyncTask<double>> tasks;
    for (int i = 0; i < 50; ++i)
        tasks.push_back(client.submit<double>("sleep", 0.05));  // so that all end before it asks for one, after 5 s
    for (auto& task : tasks)
        CHECK(task.get() >= 0.05);
    const auto count = client.statistics().requests;
    CHECK(count >= 100);  // to submit and to fetch
    CHECK(count <= 110);
}

TEST_CASE("tasks are asked for where the server has no WebSocket left", "[client][streams]") {
    const ExampleDaemon server({"--max-web-sockets", "1"});
    const auto taken = server.client().stream<double>("sum_of");
    auto task = server.client().submit<double>("sleep", 0.3);
    int told = 0;
    task.on_progress([&](const TaskStatus&) { ++told; });
    CHECK(task.get() >= 0.3);
    CHECK(told > 0);
    const AsyncClient client(server.url());
    CHECK(client.submit<double>("sleep", 0.1).get() >= 0.1);
}

TEST_CASE("tasks beyond those that a WebSocket may watch are asked for, and a watch that ends makes room for another",
          "[client][streams]") {
    const ExampleDaemon server({"--workers", "16", "--queue", "4000"});
    const AsyncClient client(server.url());
    std::vector<AsyncTask<double>> tasks;
    for (int i = 0; i < 1'200; ++i)
        tasks.push_back(client.submit<double>("sleep", 0.01));
    for (auto& task : tasks)
        REQUIRE(task.get() >= 0.01);
    const auto before = client.statistics().requests;
    for (int i = 0; i < 5; ++i)
        CHECK(client.submit<double>("sleep", 0.15).get() >= 0.15);
    CHECK(client.statistics().requests - before <= 20);
}

TEST_CASE("a task that nobody knows is unknown to who watches it too", "[client][streams]") {
    const ExampleDaemon server;
    auto task = server.client().task<double>("t-00");
    task.on_progress([](const TaskStatus&) {});
    CHECK_THROWS_AS(task.get(), UnknownOrExpired);
}

TEST_CASE("a cancelled task is told of at once", "[client][streams]") {
    const ExampleDaemon server;
    auto task = server.client().submit<double>("sleep", 30.0);
    auto ended = std::async(std::launch::async, [watched = task]() mutable {
        watched.on_progress([](const TaskStatus&) {});
        return watched.wait_for(30s);
    });
    task.cancel();
    CHECK(ended.get());
    CHECK(task.status().state == TaskState::cancelled);
}

TEST_CASE("tasks of a server that is killed fail for who watches them", "[client][streams]") {
    ExampleDaemon server;
    const AsyncClient client(server.url());
    auto task = client.submit<double>("sleep", 30.0);
    std::promise<void> running;
    std::once_flag once;
    task.on_progress([&](const TaskStatus& status) {
        if (status.state == TaskState::running) std::call_once(once, [&] { running.set_value(); });
    });
    running.get_future().wait();
    server.daemon.child().signal(SIGKILL);
    CHECK_THROWS_AS(task.get(), TransportFailure);
}

TEST_CASE("plain HTTP says where tasks can be watched", "[streams]") {
    const ExampleDaemon server;
    const Json rejected = respond(server.daemon.port(), "task.watch", {{"id", "t-0"}});
    CHECK(code_of(rejected) == -32600);
    CHECK(rejected.dump().find("task.wait") != std::string::npos);
}
