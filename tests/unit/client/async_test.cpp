// AsyncClient in front of a script: calls, and tasks that are polled.

#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <system_error>
#include <thread>

#include "scripted.hpp"
#include "support/daemon.hpp"
#include "support/forked_child.hpp"
#include "support/process.hpp"

using namespace shared_tensor::test;
using namespace shared_tensor;

namespace {

/// Holds each request until it is released.
struct Gate {
    Event arrived, release;
    Reply reply(Reply then) {
        return [this, then = std::move(then)](const net::ClientRequest& request) {
            arrived.set();
            release.wait();
            return then(request);
        };
    }
};

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

/// A client with one thread.
struct TaskClient : ScriptedAsync {
    explicit TaskClient(Reply reply) : ScriptedAsync({std::move(reply)}, one_thread()) {}
};

}  // namespace

TEST_CASE("A callback gets the error by its future, may start further calls, and harms nobody if it throws",
          "[client]") {
    ScriptedAsync client({breaks(), gives(2)}, ScriptedAsync::one_thread());
    std::promise<std::string> error;
    std::promise<int> second;
    client.call_then([&](std::future<int> result) {
        client.call_then([&](std::future<int> further) { second.set_value(further.get()); });
        try {
            result.get();
            error.set_value("none");
        } catch (const TransportFailure& failure) {
            error.set_value(failure.what());
        }
        throw std::runtime_error("user");
    });
    CHECK(error.get_future().get().find("it broke") != std::string::npos);
    CHECK(second.get_future().get() == 2);
    client.call_then([](std::future<int>) { throw 1; });
    CHECK(client.call().get() == 2);
}

TEST_CASE("A call beyond those that may wait fails with what to do", "[client]") {
    Gate gate;
    AsyncOptions options = ScriptedAsync::one_thread();
    options.max_waiting = 2;
    ScriptedAsync client({gate.reply(gives(1))}, options);
    auto running = client.call();
    REQUIRE(gate.arrived.wait());
    auto first = client.call(), second = client.call();
    const auto error = thrown_by<ServerBusy>([&] { client.call().get(); });
    CHECK(std::string(error.what()).find("AsyncOptions::max_waiting") != std::string::npos);
    gate.release.set();
    CHECK(second.get() == 1);
}

TEST_CASE("The time of a call and of a submission begins when it is started", "[client]") {
    Gate gate;
    TaskServer server;
    TaskClient client(gate.reply(server.reply()));
    auto running = client.submit();
    REQUIRE(gate.arrived.wait());  // the only thread is taken
    auto late = client.call(within(std::chrono::milliseconds(1)));
    auto late_task = client.submit(within(std::chrono::milliseconds(1)));
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    server.set("completed", 1.0);
    gate.release.set();
    CHECK_THROWS_AS(late.get(), DeadlineExceeded);
    CHECK_THROWS_AS(late_task.get(), DeadlineExceeded);
    CHECK(running.get() == 42);
}

TEST_CASE("A call without a timeout waits for a thread as long as it takes", "[client]") {
    AsyncOptions options = ScriptedAsync::one_thread();
    options.client.answer_limit = std::chrono::milliseconds(200);
    CHECK(eventually([&] {  // the answer itself may come too late once
        Gate gate;
        ScriptedAsync client({gate.reply(gives(1)), gives(2)}, options);
        auto running = client.call(), waiting = client.call();
        REQUIRE(gate.arrived.wait());
        std::this_thread::sleep_for(std::chrono::milliseconds(250));
        gate.release.set();
        try {
            return waiting.get() == 2;
        } catch (const RpcError&) {
            return false;
        }
    }));
}

#if !defined(__SANITIZE_THREAD__)  // it allows no thread after a fork
TEST_CASE("A task that no thread can watch fails", "[client]") {
    const auto fails_or_ends = [] {
        TaskServer server;
        server.set("completed");
        TaskClient client(server.reply());
        static_cast<void>(client.call(within(std::chrono::milliseconds(0))).wait_for(std::chrono::seconds(10)));
        leave_room(::getpid(), std::uint64_t{1} << 20);  // less than the stack of a thread
        try {
            return client.submit().get() == 42;  // a thread that ended has left its stack
        } catch (const std::system_error&) {
            return true;
        }
    };
    CHECK(in_child(fails_or_ends));
}
#endif

TEST_CASE("The end cancels what waits, once what is in flight has ended, and calls after it", "[client]") {
    Gate gate;
    ScriptedAsync client({gate.reply(breaks())}, ScriptedAsync::one_thread());
    auto running = client.call(), waiting = client.call();
    REQUIRE(gate.arrived.wait());
    std::jthread ender([&] { client.core->stop(); });
    REQUIRE(client.sender->ended.wait());
    gate.release.set();
    CHECK_THROWS_AS(waiting.get(), Cancelled);
    CHECK_THROWS_AS(running.get(), RpcError);
    ender.join();
    CHECK_THROWS_AS(client.call().get(), Cancelled);
}

TEST_CASE("A task is submitted with its method, parameters and a key of its own, and fails with its error",
          "[client]") {
    TaskServer server;
    server.set("failed");
    TaskClient client(server.reply());
    CallOptions options;
    options.task_ttl = std::chrono::seconds(60);
    options.task_deadline = std::chrono::seconds(5);
    CHECK_THROWS_AS(client.submit(options).get(), FunctionFailed);
    const Json params = server.submitted();
    CHECK(params.at("method") == "train");
    CHECK(params.at("params") == Json{5});
    CHECK(params.at("ttl_ms") == 60'000);
    CHECK(params.at("deadline_ms") == 5'000);
    CHECK(params.at("idempotency_key").get<std::string>().size() == 32);
}

TEST_CASE("Progress is told once for each thing that is new, and a callback that throws harms nobody", "[client]") {
    TaskServer server;
    TaskClient client(server.reply());
    auto task = client.submit();
    Guarded<std::vector<double>> seen;
    Event told;
    task.on_progress([&](const TaskStatus& status) {
        seen.with([&](auto& list) { list.push_back(status.fraction.value_or(-1)); });
        told.set();
        throw std::runtime_error("user");
    });
    REQUIRE(told.wait(1));
    REQUIRE(server.looked.wait(server.looked.count() + 3));
    server.set("running", 0.5);
    REQUIRE(told.wait(2));
    server.set("completed", 1.0);
    CHECK(task.get() == 42);
    CHECK(seen.with([](auto& list) { return list; }) == std::vector{0.0, 0.5, 1.0});
}

TEST_CASE("A task that is cancelled before its turn is never submitted, and one that is being submitted ends then",
          "[client]") {
    TaskServer server;
    Gate gate;
    TaskClient client(gate.reply(server.reply()));
    auto first = client.submit();
    REQUIRE(gate.arrived.wait());  // the only thread is taken
    auto second = client.submit();
    first.cancel();
    second.cancel();
    gate.release.set();
    REQUIRE(server.cancelled.wait());
    CHECK_THROWS_AS(first.get(), Cancelled);
    CHECK_THROWS_AS(second.get(), Cancelled);
    CHECK(second.id().empty());
}

TEST_CASE("A task of which the server knows nothing any more fails", "[client]") {
    TaskClient client([](const net::ClientRequest& request) {
        const Json json = json_of(request);
        if (!json.is_array()) return answer(200, result_for(json, {{"id", "t-1"}, {"state", "pending"}}).dump());
        return answer(200, Json::array({error_for(json.at(0), -32005, nullptr)}).dump());
    });
    CHECK_THROWS_AS(client.submit().get(), UnknownOrExpired);
}

TEST_CASE("A task ends when it is cancelled; at the client's end it is cancelled here, and goes on there", "[client]") {
    TaskServer server;
    auto client = std::make_unique<TaskClient>(server.reply());
    auto cancelled = client->submit();
    REQUIRE(server.looked.wait());
    cancelled.cancel();
    CHECK_THROWS_AS(cancelled.get(), Cancelled);
    CHECK(server.cancelled.count() == 1);
    server.set("running");
    auto watched = client->submit();
    REQUIRE(server.looked.wait(server.looked.count() + 1));
    client.reset();
    CHECK_THROWS_AS(watched.get(), Cancelled);
    CHECK(server.cancelled.count() == 1);
    watched.cancel();  // nothing to cancel with: no harm
}
