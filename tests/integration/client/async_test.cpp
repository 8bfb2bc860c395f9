#include <catch2/catch_test_macros.hpp>
#include <future>
#include <vector>

#include <shared_tensor/async_client.hpp>

#include "example_daemon.hpp"

using namespace shared_tensor;
using namespace shared_tensor::test;

TEST_CASE("Many calls in flight each get their own answer", "[client]") {
    const ExampleDaemon server;
    const AsyncClient client(server.url());
    std::vector<std::future<int>> results;
    for (int i = 0; i < 200; ++i)
        results.push_back(client.call<int>("echo", i));
    for (int i = 0; i < 200; ++i)
        CHECK(results[static_cast<std::size_t>(i)].get() == i);
    CHECK(client.statistics().requests == 200);
}

TEST_CASE("A callback and a view with other options reach the server", "[client]") {
    const ExampleDaemon server;
    const AsyncClient client(server.url());
    std::promise<double> sum;
    client.call_then<double>([&](std::future<double> result) { sum.set_value(result.get()); }, "add", 1, 2);
    CHECK(sum.get_future().get() == 3);
    CallOptions options;
    options.timeout = std::chrono::milliseconds(50);
    CHECK_THROWS_AS(client.with(options).call("sleep", 20).get(), DeadlineExceeded);
}

TEST_CASE("Tasks run beside calls, more of them than there are threads", "[client]") {
    const ExampleDaemon server;
    AsyncOptions options;
    options.client.url = server.url();
    options.threads = 1;
    const AsyncClient client(options);
    std::vector<AsyncTask<double>> tasks;
    for (int i = 0; i < 8; ++i)
        tasks.push_back(client.submit<double>("sleep", 0.2));
    CHECK(client.call<double>("add", 1, 2).get() == 3);
    for (auto& task : tasks)
        CHECK(task.get() >= 0.2);
}

TEST_CASE("A running task is cancelled from outside", "[client]") {
    const ExampleDaemon server;
    const AsyncClient client(server.url());
    auto task = client.submit<double>("sleep", 30);
    std::promise<void> running;
    bool told = false;
    task.on_progress([&](const TaskStatus& status) {
        if (status.state == TaskState::running && !told) running.set_value();
        told = told || status.state == TaskState::running;
    });
    running.get_future().wait();
    task.cancel();
    CHECK_THROWS_AS(task.get(), Cancelled);
}

TEST_CASE("The end of the client cuts calls in flight", "[client]") {
    const ExampleDaemon server;
    std::future<double> result;
    {
        const AsyncClient client(server.url());
        result = client.call<double>("sleep", 20);
        client.call<int>("echo", 1).get();
    }
    CHECK_THROWS_AS(result.get(), Cancelled);
}
