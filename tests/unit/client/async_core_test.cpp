#include "client/async/async_core.hpp"

#include <catch2/catch_test_macros.hpp>
#include <future>

#include "scripted.hpp"
#include "support/event.hpp"

using namespace shared_tensor;
using namespace shared_tensor::test;

namespace {

/// An AsyncCore in front of a script, as AsyncCaller drives it.
struct ScriptedAsync {
    explicit ScriptedAsync(std::vector<Reply> script, std::size_t threads = 2, std::size_t max_waiting = 100)
        : sender(new ScriptedRequests(std::move(script))),
          core(std::make_shared<client::AsyncCore>(async_options(threads, max_waiting), dependencies())) {}
    ~ScriptedAsync() { core->stop(); }

    std::future<int> call(std::string_view method) {
        auto slot = std::make_unique<detail::AsyncSlotOf<int>>();
        auto result = slot->future();
        core->start(method, detail::ArgumentsOf<>(), std::move(slot), {});
        return result;
    }
    void call_then(std::function<void(std::future<int>)> then) {
        core->start("f", detail::ArgumentsOf<>(), std::make_unique<detail::AsyncSlotOf<int>>(std::move(then)), {});
    }

    ScriptedRequests* sender;  // owned by the core
    std::shared_ptr<client::AsyncCore> core;

private:
    static AsyncOptions async_options(std::size_t threads, std::size_t max_waiting) {
        AsyncOptions options;
        options.client = options_for_tests();
        options.threads = threads;
        options.max_waiting = max_waiting;
        return options;
    }
    client::Dependencies dependencies() {
        return {std::unique_ptr<client::RequestSender>(sender), std::make_unique<NoPorts>(), &real_clock(), {}};
    }
};

/// Holds each request until it is released.
struct Gate {
    Event arrived, release;
    Reply reply(Reply then) {
        return [this, then](const net::ClientRequest& request) {
            arrived.set();
            release.wait();
            return then(request);
        };
    }
};

}  // namespace

TEST_CASE("A future holds the result", "[client]") {
    ScriptedAsync client({gives(7)});
    CHECK(client.call("f").get() == 7);
}

TEST_CASE("A future holds the error", "[client]") {
    ScriptedAsync client({rejects(-32000)});
    CHECK_THROWS_AS(client.call("f").get(), FunctionFailed);
}

TEST_CASE("A result of another type is the future's error", "[client]") {
    ScriptedAsync client({gives("seven")});
    CHECK_THROWS_AS(client.call("f").get(), ResultMismatch);
}

TEST_CASE("As many calls are in flight as there are threads", "[client]") {
    Gate gate;
    ScriptedAsync client({gate.reply(gives(1))}, 3);
    std::vector<std::future<int>> results;
    for (int i = 0; i < 5; ++i)
        results.push_back(client.call("f"));
    CHECK(gate.arrived.wait(3));
    CHECK(gate.arrived.count() == 3);
    for (int i = 0; i < 5; ++i)
        gate.release.set();
    for (auto& result : results)
        CHECK(result.get() == 1);
}

TEST_CASE("A callback gets a future that is ready", "[client]") {
    ScriptedAsync client({gives(7)});
    std::promise<int> seen;
    client.call_then([&](std::future<int> result) { seen.set_value(result.get()); });
    CHECK(seen.get_future().get() == 7);
}

TEST_CASE("A callback gets the error by its future", "[client]") {
    ScriptedAsync client({breaks()});
    std::promise<bool> seen;
    client.call_then([&](std::future<int> result) {
        try {
            result.get();
        } catch (const TransportFailure&) {
            seen.set_value(true);
        }
    });
    CHECK(seen.get_future().get());
}

TEST_CASE("A callback may start further calls", "[client]") {
    ScriptedAsync client({gives(1), gives(2)});
    std::promise<int> seen;
    client.call_then(
        [&](std::future<int>) { client.call_then([&](std::future<int> second) { seen.set_value(second.get()); }); });
    CHECK(seen.get_future().get() == 2);
}

TEST_CASE("A callback that throws harms nobody", "[client]") {
    ScriptedAsync client({gives(7)}, 1);
    client.call_then([](std::future<int>) { throw std::runtime_error("user"); });
    client.call_then([](std::future<int>) { throw 1; });
    CHECK(client.call("f").get() == 7);
}

TEST_CASE("A call beyond those that may wait fails with what to do", "[client]") {
    Gate gate;
    ScriptedAsync client({gate.reply(gives(1))}, 1, 2);
    auto running = client.call("f");
    REQUIRE(gate.arrived.wait());
    auto first = client.call("f");
    auto second = client.call("f");
    try {
        client.call("f").get();
        FAIL("no error");
    } catch (const ServerBusy& error) {
        CHECK(std::string(error.what()).find("AsyncOptions::max_waiting") != std::string::npos);
    }
    gate.release.set();
    CHECK(second.get() == 1);
}

TEST_CASE("The end cancels what waits, once what is in flight has ended", "[client]") {
    Gate gate;
    ScriptedAsync client({gate.reply(breaks())}, 1);
    auto running = client.call("f");
    auto waiting = client.call("f");
    REQUIRE(gate.arrived.wait());
    std::jthread ender([&] { client.core->stop(); });
    REQUIRE(client.sender->ended.wait());
    gate.release.set();
    CHECK_THROWS_AS(waiting.get(), Cancelled);
    CHECK_THROWS_AS(running.get(), RpcError);
}

TEST_CASE("A call after the end is cancelled at once", "[client]") {
    ScriptedAsync client({gives(7)});
    client.core->stop();
    CHECK_THROWS_AS(client.call("f").get(), Cancelled);
}

TEST_CASE("The end cuts a pause between two tries short", "[client]") {
    AsyncOptions options;
    options.client = options_for_tests();
    options.client.retry = fixed_delay(std::chrono::hours(1), 2);
    auto* sender = new ScriptedRequests({is_not_there()});
    client::AsyncCore core(
        options, {std::unique_ptr<client::RequestSender>(sender), std::make_unique<NoPorts>(), &real_clock(), {}});
    auto slot = std::make_unique<detail::AsyncSlotOf<int>>();
    auto result = slot->future();
    CallOptions patient;
    patient.timeout = std::chrono::hours(10);
    core.start("f", detail::ArgumentsOf<>(), std::move(slot), patient);
    core.stop();
    CHECK_THROWS_AS(result.get(), Cancelled);
}
