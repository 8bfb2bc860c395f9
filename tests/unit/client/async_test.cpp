// AsyncClient in front of a script: calls, and tasks that are polled.

#include <catch2/catch_test_macros.hpp>
#include <future>

#include "client/async/async_core.hpp"
#include "scripted.hpp"
#include "support/event.hpp"

using namespace shared_tensor::test;
using namespace shared_tensor;

namespace {

/// An AsyncCore in front of a script, as AsyncCaller drives it.
struct ScriptedAsync {
    explicit ScriptedAsync(std::vector<Reply> script, std::size_t threads = 2, std::size_t max_waiting = 100)
        : sender(new ScriptedRequests(std::move(script))),
          core(std::make_shared<client::AsyncCore>(async_options(threads, max_waiting), dependencies())) {}
    ~ScriptedAsync() { core->stop(); }

    std::future<int> call(std::string_view method, Receipt* receipt = nullptr) {
        auto slot = std::make_unique<detail::AsyncSlotOf<int>>();
        auto result = slot->future();
        core->start(method, detail::ArgumentsOf<>(), std::move(slot), {}, receipt);
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

TEST_CASE("A future holds the result or the error, and its receipt is filled before", "[client]") {
    ScriptedAsync client({gives(7), rejects(-32000)});
    Receipt receipt;
    CHECK(client.call("f", &receipt).get() == 7);
    CHECK(receipt.tries == 1);
    CHECK(receipt.request_id == "1");
    CHECK_THROWS_AS(client.call("f", &receipt).get(), FunctionFailed);
    CHECK(receipt.request_id == "2");
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

namespace {

/// A server with one task, whose states a test sets.
class TaskServer {
public:
    void set(std::string state, double fraction = 0) {
        state_.with([&](State& now) { now.state = std::move(state), now.fraction = fraction; });
    }
    Reply reply() {
        return [this](const net::ClientRequest& request) {
            const Json json = json_of(request);
            if (!json.is_array()) return answer(200, answer_to(json).dump());
            Json answers = Json::array();
            for (const auto& item : json)
                answers.push_back(answer_to(item));
            return answer(200, answers.dump());
        };
    }
    Json submitted() const {
        return state_.with([](const State& now) { return now.submitted; });
    }
    Event looked, cancelled;

private:
    struct State {
        std::string state = "running";
        double fraction = 0;
        Json submitted;
    };
    Json status() const {
        return state_.with([](const State& now) {
            return Json{
                {"id", "t-1"}, {"method", "train"}, {"state", now.state}, {"progress", {{"fraction", now.fraction}}}};
        });
    }
    Json answer_to(const Json& item) {
        const std::string method = item.at("method");
        if (method == "task.submit") state_.with([&](State& now) { now.submitted = item.at("params"); });
        if (method == "task.cancel") set("cancelled");
        const Json json = status();
        if (method == "task.get") looked.set();
        if (method == "task.cancel") cancelled.set();
        if (method != "task.result") return result_for(item, json);
        if (json.at("state") == "cancelled") return error_for(item, -32004, nullptr);
        if (json.at("state") == "failed") return error_for(item, -32000, nullptr);
        return result_for(item, 42);
    }
    Guarded<State> state_;
};

struct TaskClient {
    explicit TaskClient(Reply reply) {
        AsyncOptions options;
        options.client = options_for_tests();
        options.threads = 1;
        core = std::make_shared<client::AsyncCore>(
            options, client::Dependencies{std::make_unique<ScriptedRequests>(std::vector{std::move(reply)}),
                                          std::make_unique<NoPorts>(),
                                          &real_clock(),
                                          {}});
    }
    ~TaskClient() { core->stop(); }
    AsyncTask<int> submit(CallOptions options = {}) {
        auto slot = std::make_unique<detail::AsyncSlotOf<int>>();
        auto result = slot->future();
        return {core->start_task("train", detail::ArgumentsOf<int>(5), std::move(slot), std::move(options)),
                std::move(result)};
    }
    std::shared_ptr<client::AsyncCore> core;
};

}  // namespace

TEST_CASE("The future of a task becomes ready when the task has ended", "[client]") {
    TaskServer server;
    TaskClient client(server.reply());
    auto task = client.submit();
    REQUIRE(server.looked.wait(2));
    CHECK(task.result().wait_for(std::chrono::seconds(0)) == std::future_status::timeout);
    server.set("completed");
    CHECK(task.get() == 42);
    CHECK(task.id() == "t-1");
}

TEST_CASE("A task holds no thread while it runs", "[client]") {
    TaskServer server;
    TaskClient client(server.reply());
    std::vector<AsyncTask<int>> tasks;
    for (int i = 0; i < 20; ++i)
        tasks.push_back(client.submit());  // one thread
    server.set("completed");
    for (auto& task : tasks)
        CHECK(task.get() == 42);
}

TEST_CASE("A task is submitted with its method, parameters and a key of its own", "[client]") {
    TaskServer server;
    server.set("completed");
    TaskClient client(server.reply());
    CallOptions options;
    options.task_ttl = std::chrono::seconds(60);
    options.task_deadline = std::chrono::seconds(5);
    client.submit(options).get();
    const Json params = server.submitted();
    CHECK(params.at("method") == "train");
    CHECK(params.at("params") == Json{5});
    CHECK(params.at("ttl_ms") == 60'000);
    CHECK(params.at("deadline_ms") == 5'000);
    CHECK(params.at("idempotency_key").get<std::string>().size() == 32);
}

TEST_CASE("The error of a task is the error of its future", "[client]") {
    TaskServer server;
    server.set("failed");
    TaskClient client(server.reply());
    auto task = client.submit();
    CHECK_THROWS_AS(task.get(), FunctionFailed);
}

TEST_CASE("Progress is told once for each thing that is new", "[client]") {
    TaskServer server;
    TaskClient client(server.reply());
    auto task = client.submit();
    Guarded<std::vector<double>> seen;
    Event told;
    task.on_progress([&](const TaskStatus& status) {
        seen.with([&](auto& list) { list.push_back(status.fraction.value_or(-1)); });
        told.set();
    });
    REQUIRE(told.wait(1));
    REQUIRE(server.looked.wait(server.looked.count() + 3));
    server.set("running", 0.5);
    REQUIRE(told.wait(2));
    server.set("completed", 1.0);
    CHECK(task.get() == 42);
    CHECK(seen.with([](auto& list) { return list; }) == std::vector{0.0, 0.5, 1.0});
}

TEST_CASE("A progress callback that throws harms nobody", "[client]") {
    TaskServer server;
    TaskClient client(server.reply());
    auto task = client.submit();
    Event told;
    task.on_progress([&](const TaskStatus&) {
        told.set();
        throw std::runtime_error("user");
    });
    REQUIRE(told.wait());
    server.set("completed");
    CHECK(task.get() == 42);
}

TEST_CASE("A cancelled task ends its future", "[client]") {
    TaskServer server;
    TaskClient client(server.reply());
    auto task = client.submit();
    REQUIRE(server.looked.wait());
    task.cancel();
    CHECK_THROWS_AS(task.get(), Cancelled);
    CHECK(server.cancelled.count() == 1);
}

TEST_CASE("A task that is cancelled before its turn is never submitted", "[client]") {
    TaskServer server;
    Event arrived, release;
    TaskClient client([&, reply = server.reply()](const net::ClientRequest& request) {
        arrived.set();
        release.wait();
        return reply(request);
    });
    auto first = client.submit();
    REQUIRE(arrived.wait());  // the only thread is taken
    auto second = client.submit();
    second.cancel();
    release.set();
    CHECK_THROWS_AS(second.get(), Cancelled);
    CHECK(second.id().empty());
}

TEST_CASE("A task of which the server knows nothing any more fails", "[client]") {
    TaskClient client([](const net::ClientRequest& request) {
        const Json json = json_of(request);
        if (!json.is_array()) {
            return answer(200, result_for(json, {{"id", "t-1"}, {"state", "pending"}}).dump());
        }
        return answer(200, Json::array({error_for(json.at(0), -32005, nullptr)}).dump());
    });
    auto task = client.submit();
    CHECK_THROWS_AS(task.get(), UnknownOrExpired);
}

TEST_CASE("Tasks that are watched at the end are cancelled here, and go on there", "[client]") {
    TaskServer server;
    auto client = std::make_unique<TaskClient>(server.reply());
    auto task = client->submit();
    REQUIRE(server.looked.wait());
    client.reset();
    CHECK_THROWS_AS(task.get(), Cancelled);
    CHECK(server.cancelled.count() == 0);
    task.cancel();  // nothing to cancel with: no harm
}
