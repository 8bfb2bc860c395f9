// What ends the waits of a client: the stop or the timeout of its call, or its shutdown, even if the server hangs.

#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <csignal>
#include <functional>
#include <stop_token>
#include <thread>
#include <vector>

#include <shared_tensor/json.hpp>

#include "integration/client/example_daemon.hpp"

using namespace shared_tensor::test;
using namespace shared_tensor;
using namespace std::chrono_literals;

namespace {

/// A daemon that hangs as long as this object lives.
struct Hanging {
    explicit Hanging(ExampleDaemon& server) : child(server.daemon.child()) { child.freeze(); }
    Hanging(const Hanging&) = delete;
    Hanging& operator=(const Hanging&) = delete;
    ~Hanging() { child.signal(SIGCONT); }
    Child& child;
};

/// Whether `use` throws an Error, within a time in which no wait for the local channel (12 s) ends by itself.
template <class Error>
bool throws_soon(const std::function<void()>& use) {
    const auto start = std::chrono::steady_clock::now();
    try {
        use();
    } catch (const Error&) {
        return std::chrono::steady_clock::now() - start < 8s;
    }
    return false;
}

}  // namespace

TEST_CASE("a stop ends what waits for the local channel of a server that hangs", "[client][waits]") {
    ExampleDaemon server;
    const Hanging hangs(server);
    std::vector<float> numbers(1 << 16);
    const TensorRef tensor(numbers.data(), DType::float32, {1 << 16});
    const auto stopped = [&](const std::function<void(const Client&)>& use) {
        std::stop_source stop;
        const Client client = server.client().with({.stop = stop.get_token()});
        const std::jthread stopper([&] {
            std::this_thread::sleep_for(100ms);
            stop.request_stop();
        });
        return throws_soon<Cancelled>([&] { use(client); });
    };
    CHECK(stopped([](const Client& client) { client.call("add", 1, 2); }));
    CHECK(stopped([](const Client& client) { client.stream("sum_of"); }));
    CHECK(stopped([&](const Client& client) { client.notify("scale", tensor); }));
    CHECK(stopped([](const Client& client) { client.new_session(); }));
    CHECK(stopped([](const Client& client) { client.transports(); }));
    CHECK(stopped([&](const Client& client) {
        auto batch = client.batch();
        batch.add<TensorRef>("scale", tensor);
        batch.send();
    }));
}

TEST_CASE("a session is waited for until its timeout, and none stays that nobody waits for", "[client][waits]") {
    ExampleDaemon server;
    const auto sessions = [&] { return server.totals()["sessions"].get<int>(); };
    const Client client = server.client();
    client.call<TensorRef>("ramp", 1 << 16);  // the local channel is open
    const int before = sessions();
    {
        const Client fresh = server.client();
        const Hanging hangs(server);
        for (int i = 0; i < 3; ++i)
            CHECK(throws_soon<DeadlineExceeded>([&] { client.with({.timeout = 200ms}).new_session(); }));
        std::stop_source stop;
        const std::jthread connects(
            [&] { throws_soon<Cancelled>([&] { fresh.with({.stop = stop.get_token()}).call("add", 1, 2); }); });
        std::this_thread::sleep_for(100ms);
        CHECK(throws_soon<DeadlineExceeded>([&] { fresh.with({.timeout = 200ms}).new_session(); }));
        stop.request_stop();
    }
    CHECK(eventually([&] { return sessions() == before; }));
}

TEST_CASE("shutdown() ends a call that waits for the local channel of a server that hangs", "[client][waits]") {
    ExampleDaemon server;
    const Hanging hangs(server);
    const Client client = server.client();
    const std::jthread ender([&] {
        std::this_thread::sleep_for(100ms);
        client.shutdown();
    });
    CHECK(throws_soon<TransportFailure>([&] { client.call("add", 1, 2); }));
}

TEST_CASE("a call with streams ends at its timeout, even if the server hangs", "[client][streams][waits]") {
    ExampleDaemon server;
    const Client client = server.client().with({.timeout = 4s});
    auto sum = client.stream<double>("sum_of");
    auto numbers = sum.writer<double>();
    auto counted = client.stream("count", named("up_to", 100'000), named("seconds_between", 0.001));
    auto reader = counted.reader<std::int64_t>();
    REQUIRE(reader.next());
    const Hanging hangs(server);
    CHECK_THROWS_AS(
        [&] {
            while (reader.next()) {
            }
        }(),
        DeadlineExceeded);
    CHECK_THROWS_AS(sum.result(), DeadlineExceeded);
}

TEST_CASE("a stop and a timeout end the reading of tensors in shared memory of a server that hangs",
          "[client][streams][waits]") {
    ExampleDaemon server;
    std::stop_source stop;
    const Client client = server.client().with({.stop = stop.get_token()});
    auto batch = client.batch();
    const auto item = batch.add<TensorRef>("ramp", 1 << 16);
    batch.send();
    auto call = server.client().with({.timeout = 4s}).stream("tokens", named("count", 1), named("width", 1 << 16));
    auto tokens = call.reader<TensorRef>();
    std::this_thread::sleep_for(300ms);  // the item has arrived
    const Hanging hangs(server);
    const std::jthread stopper([&] {
        std::this_thread::sleep_for(100ms);
        stop.request_stop();
    });
    CHECK(throws_soon<Cancelled>([&] { item.get(); }));
    CHECK(throws_soon<DeadlineExceeded>([&] { tokens.next(); }));
}

TEST_CASE("memory whose offer was given up can be lent later", "[client][waits]") {
    ExampleDaemon server;
    const Client client = server.client();
    client.call<TensorRef>("ramp", 1 << 16);  // the local channel is open
    const TensorRef tensor = client.empty_in_shared_memory({1 << 16}, DType::float32);
    {
        const Hanging hangs(server);
        CHECK(throws_soon<DeadlineExceeded>([&] { client.with({.timeout = 300ms}).call<TensorRef>("scale", tensor); }));
    }
    CHECK(client.with({.require = "shm"}).call<TensorRef>("scale", tensor).elements() == 1 << 16);
}

TEST_CASE("a stop ends the wait for a task, and the task goes on", "[client][tasks][waits]") {
    const ExampleDaemon server;
    std::stop_source stop;
    auto task = server.client().with({.stop = stop.get_token()}).submit<double>("sleep", 600.0);
    auto told = task;
    told.on_progress([](const TaskStatus&) {});
    REQUIRE(eventually([&] { return task.status().state == TaskState::running; }));
    const std::jthread stopper([&] {
        std::this_thread::sleep_for(300ms);
        stop.request_stop();
    });
    CHECK_THROWS_AS(told.get(), Cancelled);
    CHECK_THROWS_AS(task.get(), Cancelled);
    CHECK_THROWS_AS(task.wait_for(1h), Cancelled);
    CHECK(task.status().state == TaskState::running);
    CHECK(task.cancel().state == TaskState::cancelled);
}

TEST_CASE("the tensors of a batch may be read much later", "[client][waits]") {
    const ExampleDaemon server({"--lease-confirm-within", "5s"});  // the client's word goes within 2 s
    auto batch = server.client().batch();
    const auto item = batch.add<TensorRef>("ramp", 1 << 16);
    batch.send();
    std::this_thread::sleep_for(7s);
    CHECK(server.leases() == 1);
    CHECK(reinterpret_cast<const float*>(item.get().data())[1000] == 1000);
}
