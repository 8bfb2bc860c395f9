// AsyncClient: futures, callbacks, tasks and coroutines.

#include <catch2/catch_test_macros.hpp>
#include <coroutine>
#include <exception>
#include <future>
#include <mutex>
#include <queue>
#include <string>
#include <thread>
#include <vector>

#include <shared_tensor/async_client.hpp>
#include <shared_tensor/coroutine.hpp>

#include "example_daemon.hpp"

using namespace shared_tensor::test;
using namespace shared_tensor;

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

namespace {

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

/// One thread that resumes what it is given.
class LoopExecutor {
public:
    void post(std::coroutine_handle<> coroutine) {
        const std::lock_guard lock(mutex_);
        waiting_.push(coroutine);
    }
    void run_until(const std::future<std::thread::id>& done) {
        while (done.wait_for(std::chrono::milliseconds(1)) != std::future_status::ready) {
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

TEST_CASE("A coroutine waits for calls one after another, and for several at once", "[client]") {
    const ExampleDaemon server;
    const AsyncClient client(server.url());
    CHECK(sum_of_sums(client).result.get() == 7);
    CHECK(both_at_once(client).result.get() >= 3.1);
}

TEST_CASE("A coroutine goes on where its executor says", "[client]") {
    const ExampleDaemon server;
    const AsyncClient client(server.url());
    LoopExecutor executor;
    auto where = thread_after(client, executor);
    executor.run_until(where.result);
    CHECK(where.result.get() == std::this_thread::get_id());
}

TEST_CASE("An error is thrown into the coroutine, and the end of the client too", "[client]") {
    const ExampleDaemon server;
    Started<std::string> left;
    {
        const AsyncClient client(server.url());
        CHECK(kind_of_error(client, "nobody").result.get() == "no such method");
        left = kind_of_error(client, "sleep");
    }
    CHECK(left.result.get() == "cancelled");
}
