// AsyncClient: futures, callbacks, tasks and coroutines. And CallOptions::stop against the daemon: the function learns
// of it, and other calls go on.

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <coroutine>
#include <exception>
#include <future>
#include <mutex>
#include <queue>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include <shared_tensor/async_client.hpp>
#include <shared_tensor/client/stream_call.hpp>
#include <shared_tensor/coroutine.hpp>

#include "integration/client/transfers.hpp"
#include "integration/server/shared_daemon.hpp"

using namespace shared_tensor;
using namespace shared_tensor::test;
using namespace std::chrono_literals;

namespace {

struct Async {
    ExampleDaemon server;
    std::optional<AsyncClient> client{server.url()};
};

/// A daemon whose functions the test holds, and a client.
struct Held {
    OwnDaemon daemon;
    Client client{daemon.url()};
    std::stop_source stop;
    CallOptions options = [this] {
        CallOptions with_stop;
        with_stop.stop = stop.get_token();
        return with_stop;
    }();
};

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

bool is_ready(const std::future<bool>& ended) { return ended.wait_for(10s) == std::future_status::ready; }

/// A coroutine that runs at once; its result is a future.
template <class R>
struct Started {
    struct promise_type {
        std::promise<R> promise;
        Started get_return_object() { return {promise.get_future()}; }
        std::suspend_never initial_suspend() noexcept { return {}; }
        std::suspend_never final_suspend() noexcept { return {}; }
        void return_value(R value) { promise.set_value(std::move(value)); }
        void unhandled_exception() { promise.set_exception(std::current_exception()); }
    };
    std::future<R> result;
};

Started<double> sum_of_sums(const AsyncClient& client) {
    const double left = co_await co_call<double>(client, "add", 1, 2);
    const double right = co_await co_call<double>(client, "add", left, 4);
    co_return right;
}

Started<double> both_at_once(const AsyncClient& client) {
    auto slow = co_call<double>(client, "sleep", 0.1);
    auto fast = co_call<double>(client, "add", 1, 2);  // its answer is there before it is waited for
    const double slept = co_await slow;
    co_return slept + co_await fast;
}

Started<std::string> kind_of_error(const AsyncClient& client, std::string function) {
    try {
        co_await co_call(client, function, 30);
    } catch (const MethodNotFound&) {
        co_return "no such method";
    } catch (const Cancelled&) {
        co_return "cancelled";
    }
    co_return "no error";
}

Started<bool> hold_until_cancelled(const AsyncCaller& caller, std::string name) {
    try {
        co_await co_call<int>(caller, "hold", name);
    } catch (const Cancelled& error) {
        co_return error.may_have_run();
    }
    throw std::logic_error("it was not cancelled");
}

/// One thread that resumes what it is given.
class LoopExecutor {
public:
    void post(std::coroutine_handle<> coroutine) {
        const std::lock_guard lock(mutex_);
        waiting_.push(coroutine);
    }
    void run_until(const std::future<std::thread::id>& done) {
        while (done.wait_for(1ms) != std::future_status::ready) {
            const std::lock_guard lock(mutex_);
            if (waiting_.empty()) continue;
            waiting_.front().resume();
            waiting_.pop();
        }
    }

private:
    std::mutex mutex_;
    std::queue<std::coroutine_handle<>> waiting_;
};

Started<std::thread::id> thread_after(const AsyncClient& client, LoopExecutor& executor) {
    co_await co_call<double>(client, "sleep", 0.05).resume_on([&](auto waiting) { executor.post(waiting); });
    co_return std::this_thread::get_id();
}

}  // namespace

TEST_CASE_METHOD(Async, "Many calls in flight each get their own answer", "[client]") {
    std::vector<std::future<int>> results;
    for (int i = 0; i < 200; ++i)
        results.push_back(client->call<int>("echo", i));
    for (int i = 0; i < 200; ++i)
        CHECK(results[static_cast<std::size_t>(i)].get() == i);
    CHECK(client->statistics().requests == 200);
    std::promise<double> sum;
    client->call_then<double>([&](std::future<double> result) { sum.set_value(result.get()); }, "add", 1, 2);
    CHECK(sum.get_future().get() == 3);
    CHECK_THROWS_AS(client->with({.timeout = 50ms}).call("sleep", 20).get(), DeadlineExceeded);
}

TEST_CASE("Tasks run beside calls, more of them than there are threads", "[client]") {
    const ExampleDaemon server;
    const AsyncClient client(AsyncOptions{.client = {.url = server.url()}, .threads = 1});
    std::vector<AsyncTask<double>> tasks;
    for (int i = 0; i < 8; ++i)
        tasks.push_back(client.submit<double>("sleep", 0.2));
    CHECK(client.call<double>("add", 1, 2).get() == 3);
    for (auto& task : tasks)
        CHECK(task.get() >= 0.2);
}

TEST_CASE_METHOD(Async, "A running task is cancelled from outside", "[client]") {
    auto task = client->submit<double>("sleep", 30);
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

TEST_CASE_METHOD(Async,
                 "A coroutine waits for calls one after another, for several at once, and where its executor says",
                 "[client]") {
    CHECK(sum_of_sums(*client).result.get() == 7);
    CHECK(both_at_once(*client).result.get() >= 3.1);
    LoopExecutor executor;
    auto where = thread_after(*client, executor);
    executor.run_until(where.result);
    CHECK(where.result.get() == std::this_thread::get_id());
}

TEST_CASE_METHOD(Async, "Errors and the end of the client are thrown into futures and coroutines", "[client]") {
    CHECK(kind_of_error(*client, "nobody").result.get() == "no such method");
    auto result = client->call<double>("sleep", 20);
    auto left = kind_of_error(*client, "sleep");
    client->call<int>("echo", 1).get();
    client.reset();
    CHECK_THROWS_AS(result.get(), Cancelled);
    CHECK(left.result.get() == "cancelled");
}

TEST_CASE_METHOD(Held, "A stop ends a call, and the function's context; another call of the client goes on",
                 "[client]") {
    const bool by_stub = GENERATE(false, true);
    const Calls other(daemon.port());
    auto goes_on = std::async(std::launch::async, [&] { return client.call<int>("hold", other.name); });
    REQUIRE(other.until("running"));
    auto ended = cancelled([&] {
        const Client cancellable = client.with(options);
        by_stub ? cancellable.function<int(std::string)>("hold")(daemon.name)
                : cancellable.call<int>("hold", daemon.name);
    });
    REQUIRE(daemon.until("running"));
    stop.request_stop();
    REQUIRE(is_ready(ended));
    CHECK(ended.get());
    CHECK(daemon.until("cancelled"));
    other.release();
    CHECK(goes_on.get() == 0);
}

TEST_CASE_METHOD(Held, "A stop before a call sends nothing", "[client]") {
    stop.request_stop();
    auto ended = cancelled([&] { client.with(options).call<int>("hold", daemon.name); });
    REQUIRE(is_ready(ended));
    CHECK_FALSE(ended.get());
    CHECK(client.statistics().connections_opened == 0);
    CHECK(daemon.runs("started") == 0);
}

TEST_CASE_METHOD(Held, "A stop ends a batch, and an asynchronous call by future and by co_await", "[client]") {
    AsyncClient async(daemon.url());
    std::future<bool> ended;
    const int kind = GENERATE(0, 1, 2);
    if (kind == 0) {
        ended = cancelled([&] {
            Batch batch = client.with(options).batch();
            batch.add<int>("hold", daemon.name);
            batch.add<double>("add", 1, 2);
            batch.send();
        });
    } else if (kind == 1) {
        ended = cancelled([&] { async.with(options).call<int>("hold", daemon.name).get(); });
    } else {
        ended = hold_until_cancelled(async.with(options), daemon.name).result;
    }
    REQUIRE(daemon.until("running"));
    stop.request_stop();
    REQUIRE(is_ready(ended));
    CHECK(ended.get());
    CHECK(daemon.until("cancelled"));
    CHECK(async.call<double>("add", 1, 2).get() == 3);
}

TEST_CASE_METHOD(Held, "An asynchronous call that waits for a thread does not start after a stop", "[client]") {
    AsyncClient async(AsyncOptions{.client = {.url = daemon.url()}, .threads = 1});
    const Calls before(daemon.port());
    auto first = async.call<int>("hold", before.name);
    auto second = async.with(options).call<int>("hold", daemon.name);
    REQUIRE(before.until("running"));
    stop.request_stop();
    before.release();
    CHECK(first.get() == 0);
    CHECK_THROWS_AS(second.get(), Cancelled);
    CHECK(daemon.runs("started") == 0);
}

TEST_CASE_METHOD(Held, "A stop ends a call that streams", "[client]") {
    const Client cancellable = client.with(options);
    auto counting = cancellable.stream<std::int64_t>("count", 1'000'000'000, 0.01);
    auto numbers = counting.reader<std::int64_t>();
    CHECK(numbers.next() == 1);
    auto ended = cancelled([&] { counting.result(); });
    stop.request_stop();
    REQUIRE(is_ready(ended));
    const auto read_all = [&] {
        while (numbers.next()) {
        }
    };
    CHECK_THROWS_AS(read_all(), Cancelled);
    CHECK(eventually([&] { return daemon.totals()["streams"]["running"] == 0; }));
    CHECK_THROWS_AS(cancellable.stream("sum_of"), Cancelled);
}

TEST_CASE_METHOD(Held, "A stop does not end a call with an idempotency key in the server", "[client]") {
    options.idempotency_key = "once";
    auto ended = cancelled([&] { client.with(options).call<int>("hold", daemon.name); });
    REQUIRE(daemon.until("running"));
    stop.request_stop();
    REQUIRE(is_ready(ended));
    daemon.release();
    options.stop = {};
    CHECK(client.with(options).call<int>("hold", daemon.name) == 0);  // the result of the first run
}

TEST_CASE("A stop ends a pull and a push, and nothing of the push stays in the server", "[client]") {
    Behind behind;
    const TensorRef x = numbers(1 << 20);
    behind.near.put("x", x);
    std::stop_source stop;
    CallOptions options;
    options.stop = stop.get_token();
    const NamedTensors far(behind.client().with(options));
    far.list();
    behind.proxy.hold_back(true);
    const bool pulls = GENERATE(true, false);
    auto ended = cancelled(
        [&] { pulls ? void(far.pull("x")) : void(far.push("y", x, {.connections = 1, .part_bytes = 1 << 20})); });
    const auto uploads = [&] { return behind.server.totals()["uploads"]["open"]; };
    if (!pulls) REQUIRE(eventually([&] { return uploads() == 1; }));
    CHECK(ended.wait_for(50ms) == std::future_status::timeout);
    stop.request_stop();
    REQUIRE(is_ready(ended));
    CHECK(eventually([&] { return uploads() == 0; }));
    CHECK(behind.near.list("y").empty());
}
