#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <vector>

#include "example_daemon.hpp"

using namespace shared_tensor;
using namespace shared_tensor::test;
using std::chrono::milliseconds;

TEST_CASE("A task runs without its caller and gives the result of the call", "[client]") {
    const ExampleDaemon server;
    const auto task = server.client().submit<double>("sleep", 0.05);
    CHECK(task.id().starts_with("t-"));
    CHECK(task.get() >= 0.05);
    CHECK(task.status().state == TaskState::completed);
}

TEST_CASE("Waiting for a task is bounded", "[client]") {
    const ExampleDaemon server;
    const auto task = server.client().submit<double>("sleep", 30);
    CHECK_FALSE(task.wait_for(milliseconds(50)));
    task.cancel();
}

TEST_CASE("A cancelled task has no result", "[client]") {
    const ExampleDaemon server;
    const auto task = server.client().submit<double>("sleep", 30);
    CHECK(task.cancel().state == TaskState::cancelled);
    CHECK_THROWS_AS(task.get(), Cancelled);
}

TEST_CASE("A task throws what the call would have thrown", "[client]") {
    const ExampleDaemon server;
    const auto task = server.client().submit("fail", "no luck");
    CHECK_THROWS_AS(task.get(), FunctionFailed);
    CHECK(task.status().state == TaskState::failed);
    CHECK(task.status().error.find("no luck") != std::string::npos);
}

TEST_CASE("Progress only grows, and ends with the end", "[client]") {
    const ExampleDaemon server;
    auto task = server.client().submit<double>("sleep", 1.0);
    std::vector<TaskStatus> seen;
    task.on_progress([&](const TaskStatus& status) { seen.push_back(status); });
    task.get();
    REQUIRE(seen.size() >= 2);
    for (std::size_t i = 1; i < seen.size(); ++i)
        CHECK(seen[i - 1].fraction.value_or(0) <= seen[i].fraction.value_or(0));
    CHECK(seen.back().state == TaskState::completed);
}

TEST_CASE("A task is found again by its id", "[client]") {
    const ExampleDaemon server;
    const std::string id = server.client().submit<double>("add", 1, 2).id();
    CHECK(server.client().task<double>(id).get() == 3);
}

TEST_CASE("A task that nobody submitted is unknown", "[client]") {
    const ExampleDaemon server;
    CHECK_THROWS_AS(server.client().task<double>("t-0").get(), UnknownOrExpired);
}

TEST_CASE("The same key is the same task", "[client]") {
    const ExampleDaemon server;
    CallOptions options;
    options.idempotency_key = "k";
    const Client client = server.client().with(options);
    CHECK(client.submit("sleep", 0.01).id() == client.submit("sleep", 0.01).id());
    CHECK(server.client().submit("sleep", 0.01).id() != server.client().submit("sleep", 0.01).id());
}
