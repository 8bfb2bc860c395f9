#include <catch2/catch_test_macros.hpp>
#include <future>

#include "client/async/async_core.hpp"
#include "scripted.hpp"
#include "support/event.hpp"

using namespace shared_tensor;
using namespace shared_tensor::test;

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
