// CallOptions::stop against the daemon: the function learns of it, and other calls go on.

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <coroutine>
#include <future>
#include <map>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include <shared_tensor/async_client.hpp>
#include <shared_tensor/client/stream_call.hpp>
#include <shared_tensor/coroutine.hpp>
#include <shared_tensor/tensors.hpp>

#include "example_daemon.hpp"
#include "support/faulty_proxy.hpp"

using namespace shared_tensor;
using namespace shared_tensor::test;

namespace {

ExampleDaemon with_functions_to_hold(const Words& more = {}) {
    Words options{"--load", SHARED_TENSOR_SPEC_PLUGIN};
    options.insert(options.end(), more.begin(), more.end());
    return ExampleDaemon(options);
}

CallOptions with_stop(const std::stop_source& stop) {
    CallOptions options;
    options.stop = stop.get_token();
    return options;
}

/// Waits until `hold(name)` runs, or was cancelled.
bool comes_to(const Client& client, const std::string& what, const std::string& name = "x") {
    return eventually([&] { return client.call<std::map<std::string, int>>("runs_of", name)[what] == 1; });
}

/// Runs `call`, which has to end with Cancelled; whether it may have run.
template <class Call>
std::future<bool> cancelled(Call call) {
    return std::async(std::launch::async, [call = std::move(call)] {
        try {
            call();
        } catch (const Cancelled& error) {
            return error.may_have_run();
        }
        throw std::logic_error("it was not cancelled");
    });
}

bool is_ready(std::future<bool>& ended) {
    return ended.wait_for(std::chrono::seconds(10)) == std::future_status::ready;
}

struct Work {
    struct promise_type {
        Work get_return_object() { return {}; }
        std::suspend_never initial_suspend() noexcept { return {}; }
        std::suspend_never final_suspend() noexcept { return {}; }
        void return_void() {}
        void unhandled_exception() { std::terminate(); }
    };
};

Work await_hold(const AsyncCaller& caller, std::promise<bool>& cancelled) {
    try {
        co_await co_call<int>(caller, "hold", "x");
    } catch (const Cancelled& error) {
        cancelled.set_value(error.may_have_run());
    }
}

}  // namespace

TEST_CASE("A stop ends a call, and the function's context; another call of the client goes on", "[client]") {
    const ExampleDaemon server = with_functions_to_hold();
    const bool by_stub = GENERATE(false, true);
    const Client client = server.client();
    std::stop_source stop;
    auto other = std::async(std::launch::async, [&] { return client.call<int>("hold", "other"); });
    REQUIRE(comes_to(client, "running", "other"));
    auto ended = cancelled([&] {
        const Client cancellable = client.with(with_stop(stop));
        by_stub ? cancellable.function<int(std::string)>("hold")("x") : cancellable.call<int>("hold", "x");
    });
    REQUIRE(comes_to(client, "running"));
    stop.request_stop();
    REQUIRE(is_ready(ended));
    CHECK(ended.get());
    CHECK(comes_to(client, "cancelled"));
    client.call("release", "other");
    CHECK(other.get() == 0);
}

TEST_CASE("A stop before a call sends nothing", "[client]") {
    const ExampleDaemon server = with_functions_to_hold();
    const Client client = server.client();
    std::stop_source stop;
    stop.request_stop();
    auto ended = cancelled([&] { client.with(with_stop(stop)).call<int>("hold", "x"); });
    REQUIRE(is_ready(ended));
    CHECK_FALSE(ended.get());
    CHECK(client.statistics().connections_opened == 0);
    CHECK(client.call<std::map<std::string, int>>("runs_of", "x")["started"] == 0);
}

TEST_CASE("A stop ends a batch", "[client]") {
    const ExampleDaemon server = with_functions_to_hold();
    const Client client = server.client();
    std::stop_source stop;
    auto ended = cancelled([&] {
        Batch batch = client.with(with_stop(stop)).batch();
        batch.add<int>("hold", "x");
        batch.add<double>("add", 1, 2);
        batch.send();
    });
    REQUIRE(comes_to(client, "running"));
    stop.request_stop();
    REQUIRE(is_ready(ended));
    CHECK(ended.get());
    CHECK(comes_to(client, "cancelled"));
}

TEST_CASE("A stop ends an asynchronous call, by future and by co_await", "[client]") {
    const ExampleDaemon server = with_functions_to_hold();
    const Client client = server.client();
    std::promise<bool> awaited;
    AsyncClient async(server.url());
    std::stop_source stop;
    std::future<bool> ended = awaited.get_future();
    if (GENERATE(false, true)) {
        await_hold(async.with(with_stop(stop)), awaited);
    } else {
        ended = cancelled([&] { async.with(with_stop(stop)).call<int>("hold", "x").get(); });
    }
    REQUIRE(comes_to(client, "running"));
    stop.request_stop();
    REQUIRE(is_ready(ended));
    CHECK(ended.get());
    CHECK(comes_to(client, "cancelled"));
    CHECK(async.call<double>("add", 1, 2).get() == 3);
}

TEST_CASE("An asynchronous call that waits for a thread does not start after a stop", "[client]") {
    const ExampleDaemon server = with_functions_to_hold();
    const Client client = server.client();
    AsyncClient async(AsyncOptions{.client = {.url = server.url()}, .threads = 1});
    std::stop_source stop;
    auto first = async.call<int>("hold", "first");
    auto second = async.with(with_stop(stop)).call<int>("hold", "x");
    REQUIRE(comes_to(client, "running", "first"));
    stop.request_stop();
    client.call("release", "first");
    CHECK(first.get() == 0);
    CHECK_THROWS_AS(second.get(), Cancelled);
    CHECK(client.call<std::map<std::string, int>>("runs_of", "x")["started"] == 0);
}

TEST_CASE("A stop ends a call that streams", "[client]") {
    const ExampleDaemon server;
    const Client client = server.client();
    std::stop_source stop;
    const Client cancellable = client.with(with_stop(stop));
    auto counting = cancellable.stream<std::int64_t>("count", 1'000'000'000, 0.01);
    auto numbers = counting.reader<std::int64_t>();
    CHECK(numbers.next() == 1);
    auto ended = cancelled([&] { counting.result(); });
    stop.request_stop();
    REQUIRE(is_ready(ended));
    CHECK_THROWS_AS(
        [&] {
            while (numbers.next()) {
            }
        }(),
        Cancelled);
    CHECK(eventually([&] { return server.totals()["streams"]["running"] == 0; }));
    CHECK_THROWS_AS(cancellable.stream("sum_of"), Cancelled);
}

TEST_CASE("A stop does not end a call with an idempotency key in the server", "[client]") {
    const ExampleDaemon server = with_functions_to_hold();
    const Client client = server.client();
    std::stop_source stop;
    CallOptions options = with_stop(stop);
    options.idempotency_key = "once";
    auto ended = cancelled([&] { client.with(options).call<int>("hold", "x"); });
    REQUIRE(comes_to(client, "running"));
    stop.request_stop();
    REQUIRE(is_ready(ended));
    client.call("release", "x");
    options.stop = {};
    CHECK(client.with(options).call<int>("hold", "x") == 0);  // the result of the first run
}

TEST_CASE("A stop ends a pull and a push, and nothing of the push stays in the server", "[client]") {
    FaultyProxy proxy;
    const ExampleDaemon server({"--allowed-host", proxy.authority()});
    proxy.pass_on_to(server.daemon.port());
    const Client near = server.client();
    const TensorRef x = near.empty_in_shared_memory({4 << 20}, DType::uint8);
    NamedTensors(near).put("x", x);
    std::stop_source stop;
    const NamedTensors far(far_client(proxy.url()).with(with_stop(stop)));
    far.list();
    proxy.hold_back(true);
    const bool pulls = GENERATE(true, false);
    auto ended = cancelled(
        [&] { pulls ? void(far.pull("x")) : void(far.push("y", x, {.connections = 1, .part_bytes = 1 << 20})); });
    const auto uploads = [&] { return server.totals()["uploads"]["open"]; };
    if (!pulls) REQUIRE(eventually([&] { return uploads() == 1; }));
    CHECK(ended.wait_for(std::chrono::milliseconds(50)) == std::future_status::timeout);
    stop.request_stop();
    REQUIRE(is_ready(ended));
    CHECK(eventually([&] { return uploads() == 0; }));
    CHECK(NamedTensors(near).list("y").empty());
}
