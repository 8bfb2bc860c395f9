#include "runtime/calls/dispatcher.hpp"

#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <thread>

#include "support/daemon.hpp"
#include "unit/runtime/service/call_helpers.hpp"

using namespace shared_tensor;
using namespace shared_tensor::test;
using namespace std::chrono_literals;
using json_rpc::Error;

namespace {

constexpr int kInvalid = -32602, kBusy = -32001, kDeadline = -32002, kCancelled = -32004, kStopping = -32009;

/// Functions that count their runs and wait for a word.
struct Functions {
    Event started, go, cancelled;
    std::atomic<int> count{0};
    Registry registry;

    Functions() {
        const auto held = [this](Context& context, int) {
            const int before = count++;
            started.set();
            while (go.count() == 0 && context.sleep_for(1ms)) {
            }
            if (context.cancelled()) cancelled.set();
            context.check_cancelled();
            return before;
        };
        registry.add("hold", held, arg("x"));
        registry.add("cached", held, arg("x"), cached(10s));
        registry.add("one", held, arg("x"), concurrency(1));
        registry.add("task", held, arg("x"), execution::task);
        registry.add(
            "add", [](int a, int b) { return a + b; }, arg("a"), arg("b") = 1);
        registry.add(
            "inline", [] { return std::this_thread::get_id() == std::thread::id(); }, execution::inline_);
        registry.add("brief", held, arg("x"), timeout(10ms));
        registry.add("caller", [](Context& context) {
            const Caller& caller = context.caller();
            return std::string(caller.principal) + ' ' + std::string(caller.session) + ' ' +
                   std::string(caller.task).substr(0, 2);
        });
        registry.add("fails", []() -> int { throw std::runtime_error("no"); });
    }
    /// Waits while the holds end.
    ~Functions() { go.set(); }
};

}  // namespace

TEST_CASE("a call is answered with its result or its error", "[service]") {
    Functions functions;
    Calls calls(functions.registry);
    CHECK(calls.run("add", {1, 2}) == 3);
    CHECK(calls.run("add", {{"a", 5}}) == 6);
    CHECK(calls.run("add", {"x"}) == kInvalid);
    CHECK(calls.run("nowhere", nullptr) == -32601);
    CHECK(calls.run("fails", nullptr) == -32000);
    CHECK(calls.run("inline", nullptr) == false);
    CHECK(calls.run("caller", nullptr, {}, "uid:7") == "uid:7 s-1 ");
    CHECK(calls.run("task", {1}) == -32600);
}

TEST_CASE("a full queue rejects, and what was rejected leaves nothing behind", "[service]") {
    Functions functions;
    Calls calls(functions.registry, workers(1, 1));
    const auto running = calls.started("hold", {1});
    REQUIRE(functions.started.wait());
    const auto queued = calls.started("hold", {1});
    CHECK(calls.run("hold", {1}) == kBusy);
    CHECK(calls.run("cached", {1}) == kBusy);
    CHECK(calls.run("hold", {1}, "key") == kBusy);
    CHECK(std::get<Error>(calls.submit("hold", {1}, "key")).code == kBusy);
    CHECK(calls.dispatcher.tasks().list({}).tasks.empty());
    functions.go.set();
    Calls::end_of(*running.waiter);
    Calls::end_of(*queued.waiter);
    CHECK(calls.run("hold", {1}, "key") == 2);
    CHECK(calls.run("cached", {1}) == 3);
    CHECK(std::holds_alternative<std::string>(calls.submit("hold", {1}, "key")));
}

TEST_CASE("a call left by its caller is cancelled, waiting or running", "[service]") {
    Functions functions;
    Calls calls(functions.registry, workers(1));
    auto running = calls.started("hold", {1});
    REQUIRE(functions.started.wait());
    auto waiting = calls.started("hold", {2});
    const auto execution = waiting.waiter->execution();
    waiting.waiter.reset();
    CHECK(calls.dispatcher.pool().stats().queued == 0);
    CHECK(code_of(execution->outcome()) == kCancelled);
    CHECK(execution->join() == nullptr);
    running.waiter.reset();
    CHECK(functions.cancelled.wait());
    CHECK(functions.count == 1);
}

TEST_CASE("a reader gives up at its deadline or when it is told, without harm to the others", "[service]") {
    Functions functions;
    Calls calls(functions.registry);
    const auto one = calls.started("cached", {1}), other = calls.started("cached", {1});
    CHECK(one.waiter->wait_until(SteadyTime()) == nullptr);
    std::jthread tells([&] { one.waiter->abandon(); });
    CHECK(one.waiter->wait_until(SteadyTime::max()) == nullptr);
    CHECK(one.waiter->abandoned());
    functions.go.set();
    CHECK(Calls::end_of(*other.waiter) == 0);
}

TEST_CASE("a notification goes on without a reader, up to its deadline: the request's, or the function's",
          "[service]") {
    Functions functions;
    Calls calls(functions.registry);
    const std::string method = GENERATE("hold", "brief");
    if (method == "hold") calls.timeout = 10ms;
    calls.dispatcher.detach(calls.started(method, {1}));
    REQUIRE(functions.started.wait());
    calls.clock.advance(9ms);
    calls.dispatcher.sweep();
    CHECK(functions.cancelled.count() == 0);
    calls.clock.advance(1ms);
    calls.dispatcher.sweep();
    CHECK(functions.cancelled.wait());
}

TEST_CASE("equal calls at the same moment run once", "[service]") {
    Functions functions;
    Calls calls(functions.registry, workers(4));
    std::atomic<int> answers{0};
    {
        std::vector<std::jthread> callers;
        for (int i = 0; i < 8; ++i) {
            callers.emplace_back([&] {
                FakePort port;
                const Json params{7};
                auto started = calls.dispatcher.call({"cached", params, {"uid:1", {}, {}}, std::nullopt, {}, port});
                if (Calls::end_of(*std::get<runtime::StartedCall>(started).waiter) == 0) ++answers;
            });
        }
        functions.started.wait();
        while (calls.dispatcher.cache().stats().misses < 8)
            std::this_thread::yield();
        functions.go.set();
    }
    CHECK(answers == 8);
    CHECK(functions.count == 1);
    while (calls.dispatcher.pool().stats().finished < 1)
        std::this_thread::yield();  // the result is kept after it is told
    CHECK(calls.run("cached", {7}) == 0);
    CHECK(calls.run("cached", {7}, "", "uid:2") == 1);  // principals share no results
    CHECK(calls.run("cached", {8}) == 2);
    calls.clock.advance(10s);
    CHECK(calls.run("cached", {7}) == 3);
}

TEST_CASE("a cancelled run of a cached function is not joined: the next call runs anew", "[service]") {
    Functions functions;
    Calls calls(functions.registry);
    auto first = calls.started("cached", {1});
    REQUIRE(functions.started.wait());
    first.waiter.reset();
    const auto second = calls.started("cached", {1});
    REQUIRE(functions.started.wait(2));
    functions.go.set();
    CHECK(Calls::end_of(*second.waiter) == 1);
    CHECK(calls.run("cached", {1}) == 1);
}

TEST_CASE("a key runs once, for its principal, method and arguments", "[service]") {
    Functions functions;
    functions.go.set();
    Calls calls(functions.registry);
    CHECK(calls.run("hold", {1}, "k") == 0);
    CHECK(calls.run("hold", {1}, "k") == 0);
    CHECK(calls.run("hold", {2}, "k") == kInvalid);
    CHECK(calls.run("one", {1}, "k") == 1);
    CHECK(calls.run("hold", {1}, "k", "uid:2") == 2);
    CHECK(calls.run("hold", {1}, std::string(255, 'k')) == 3);
    CHECK(calls.run("hold", {1}, std::string(256, 'k')) == kInvalid);
    calls.clock.advance(600s);
    CHECK(calls.run("hold", {1}, "k") == 4);
}

TEST_CASE("a keyed call outlives its caller, but not its deadline", "[service]") {
    Functions functions;
    Calls calls(functions.registry);
    calls.timeout = 1h;
    auto first = calls.started("hold", {1}, "k");
    REQUIRE(functions.started.wait());
    first.waiter.reset();
    SECTION("the caller comes back") {
        calls.clock.advance(1h - 1s);  // longer than keys of calls that ended are known
        calls.dispatcher.sweep();
        const auto again = calls.started("hold", {1}, "k");
        functions.go.set();
        CHECK(Calls::end_of(*again.waiter) == 0);
    }
    SECTION("it does not") {
        calls.clock.advance(1h);
        calls.dispatcher.sweep();
        CHECK(functions.cancelled.wait());
        CHECK(calls.run("hold", {1}, "k") == kCancelled);
    }
    CHECK(functions.count == 1);
}

TEST_CASE("a task ends with the outcome of its run, and its cancel ends the run", "[service]") {
    Functions functions;
    Calls calls(functions.registry);
    const auto running = std::get<std::string>(calls.submit("hold", {1}));
    REQUIRE(functions.started.wait());
    CHECK(calls.dispatcher.tasks().cancel(running, std::nullopt)->state == tasks::TaskState::cancelled);
    CHECK(functions.cancelled.wait());
    const auto info = calls.ended(std::get<std::string>(calls.submit("caller", nullptr)));
    CHECK(info.state == tasks::TaskState::completed);
    CHECK(std::static_pointer_cast<const runtime::CallOutcome>(info.outcome)->value()->json == "uid:1 s-1 t-");
    CHECK(calls.ended(std::get<std::string>(calls.submit("fails", nullptr))).state == tasks::TaskState::failed);
}

TEST_CASE("observers are told of start, progress and end, late ones of what there is, whatever another one lacks",
          "[service]") {
    std::string told, told_late;
    const auto observer = [](std::string& text) {
        return runtime::Execution::Observer{
            [&] { text += "started "; },
            [&](double fraction, std::string_view message) {
                text += std::to_string(static_cast<int>(fraction * 100)) + std::string(message) + ' ';
            },
            [&](const runtime::OutcomePointer& outcome) { text += outcome->value()->json.dump(); }};
    };
    Event runs, observed;
    std::shared_ptr<runtime::Execution> execution;
    Registry registry;
    registry.add("f", [&](Context& context) {
        runs.set();
        observed.wait();
        context.progress(0.25, "a quarter");
        context.progress(7);
        execution->observe(observer(told_late));
        return 1;
    });
    Calls calls(registry);
    auto call = calls.started("f", nullptr);
    execution = call.waiter->execution();
    REQUIRE(runs.wait());
    execution->observe({{}, {}, [reads = std::shared_ptr(execution->join())](const runtime::OutcomePointer&) {}});
    execution->observe({{}, {}, [](const runtime::OutcomePointer&) { throw std::bad_alloc(); }});
    execution->observe(observer(told));
    observed.set();
    CHECK(Calls::end_of(*call.waiter) == 1);
    while (calls.dispatcher.pool().stats().finished == 0)
        std::this_thread::yield();
    CHECK(told == "started 25a quarter 100 1");
    CHECK(told_late == "started 100 1");
    told.clear();
    execution->observe(observer(told));
    CHECK(told == "1");
    const std::weak_ptr<runtime::Execution> ended = std::exchange(execution, nullptr);
    call.waiter.reset();
    CHECK(eventually([&] { return ended.expired(); }));  // though an observer has a reader of it
}

TEST_CASE("a task's deadline ends the task, and the run only when nobody else waits", "[service]") {
    Functions functions;
    Calls calls(functions.registry);
    const auto id = std::get<std::string>(calls.submit("cached", {1}, {}, {std::nullopt, 100ms}));
    REQUIRE(functions.started.wait());
    std::optional<runtime::StartedCall> equal;
    const bool shared = GENERATE(false, true);
    if (shared) equal = calls.started("cached", {1});
    calls.clock.advance(100ms);
    calls.dispatcher.sweep();
    const auto info = calls.ended(id);
    CHECK(info.state == tasks::TaskState::failed);
    CHECK(static_cast<const runtime::CallOutcome&>(*info.outcome).error()->code == kDeadline);
    if (!shared) {
        CHECK(functions.cancelled.wait());
        return;
    }
    functions.go.set();
    CHECK(Calls::end_of(*equal->waiter) == 0);
}

TEST_CASE("tasks leave one worker for calls", "[service]") {
    Functions functions;
    Calls calls(functions.registry, workers(2));
    for (int i = 0; i < 3; ++i)
        calls.submit("hold", {i});
    REQUIRE(functions.started.wait());
    CHECK(calls.run("add", {1, 2}) == 3);
    CHECK(functions.count == 1);
}

TEST_CASE("drain lets calls end, rejects new ones, and answers what is left with -32009", "[service]") {
    Functions functions;
    Calls calls(functions.registry, workers(1));
    const auto running = calls.started("hold", {1});
    REQUIRE(functions.started.wait());
    SECTION("in time") {
        calls.dispatcher.reject_new();
        functions.go.set();
        CHECK(calls.dispatcher.drain(patience()));
        CHECK(Calls::end_of(*running.waiter) == 0);
    }
    SECTION("not in time") {
        const auto queued = calls.started("hold", {1});
        const auto id = std::get<std::string>(calls.submit("hold", {1}));
        CHECK_FALSE(calls.dispatcher.drain(real_clock().now()));
        CHECK(Calls::end_of(*running.waiter) == kStopping);
        CHECK(Calls::end_of(*queued.waiter) == kStopping);
        CHECK(calls.ended(id).state == tasks::TaskState::failed);
        CHECK(functions.cancelled.wait());
        CHECK(functions.count == 1);
        while (calls.dispatcher.pool().stats().finished == 0)
            std::this_thread::yield();
        CHECK(Calls::end_of(*running.waiter) == kStopping);  // whatever its function says at its end
    }
    CHECK(calls.run("add", {1, 2}) == kStopping);
    CHECK(std::get<Error>(calls.submit("add", {1, 2})).code == kStopping);
}

TEST_CASE("a dispatcher that goes ends its tasks and waiting calls", "[service]") {
    Functions functions;
    Calls calls(functions.registry, workers(1));
    std::vector<runtime::StartedCall> started;
    started.push_back(calls.started("hold", {1}));
    REQUIRE(functions.started.wait());
    started.push_back(calls.started("cached", {1}));
    calls.submit("hold", {1}, "key");
    calls.dispatcher.detach(calls.started("hold", {2}));
    CHECK(functions.count == 1);
}

TEST_CASE("a function is brief until a run took milliseconds, and one that hung is forgotten within a hundred",
          "[service]") {
    using Runs = std::vector<std::pair<std::chrono::nanoseconds, int>>;
    for (const auto& [runs, brief] : std::vector<std::pair<Runs, bool>>{{{}, true},
                                                                        {{{20us, 100}}, true},
                                                                        {{{1ms, 1}}, false},
                                                                        {{{1h, 1}}, false},
                                                                        {{{1h, 1}, {10us, 100}}, true}}) {
        runtime::RunTime time;
        for (const auto& [run, times] : runs) {
            for (int i = 0; i < times; ++i)
                time.note(run);
        }
        CHECK(time.brief() == brief);
    }
}

TEST_CASE("live calls are listed with their state and progress, and one is cancelled by its owner or an admin",
          "[service]") {
    Functions functions;
    functions.registry.add("reports", [&](Context& context) {
        context.progress(0.25, "a quarter");
        functions.started.set();
        context.sleep_for(std::chrono::minutes(1));
        context.check_cancelled();
    });
    Calls calls(functions.registry, workers(2));
    auto reports = calls.started("reports", Json::array());
    functions.started.wait();
    auto waits = calls.started("one", {1});
    auto waits_longer = calls.started("one", {2});
    const auto list = calls.dispatcher.live_calls(std::nullopt);
    REQUIRE(list.size() == 3);
    const auto named = [&](const char* function) {
        std::vector<runtime::Execution::View> found;
        for (const auto& one : list) {
            if (one.function == function) found.push_back(one);
        }
        return found;
    };
    REQUIRE(named("reports").size() == 1);
    const auto running = named("reports").front();
    CHECK(running.running);
    CHECK(running.principal == "uid:1");
    CHECK(running.fraction == 0.25);
    CHECK(running.message == "a quarter");
    REQUIRE(named("one").size() == 2);
    CHECK_FALSE(named("one").back().running);  // it waits for the place of the other one
    CHECK(calls.dispatcher.live_calls("uid:2").empty());

    CHECK_FALSE(calls.dispatcher.cancel(running.id, "uid:2"));
    CHECK_FALSE(calls.dispatcher.cancel("c-0", std::nullopt));
    CHECK(calls.dispatcher.cancel(running.id, "uid:1"));
    CHECK(Calls::end_of(*reports.waiter) == kCancelled);
    CHECK(calls.dispatcher.cancel(named("one").back().id, std::nullopt));
    CHECK(Calls::end_of(*waits_longer.waiter) == kCancelled);
    functions.go.set();
    CHECK(Calls::end_of(*waits.waiter) == 0);
    CHECK_FALSE(calls.dispatcher.cancel(running.id, std::nullopt));  // it has ended
}

TEST_CASE("a task among the live calls is cancelled as a task", "[service]") {
    Functions functions;
    Calls calls(functions.registry, workers(2));
    const auto id = std::get<std::string>(calls.submit("hold", {1}));
    functions.started.wait();
    const auto list = calls.dispatcher.live_calls("uid:1");
    REQUIRE(list.size() == 1);
    CHECK(list.front().task == id);
    CHECK(calls.dispatcher.cancel(list.front().id, "uid:1"));
    CHECK(calls.ended(id).state == tasks::TaskState::cancelled);
}

TEST_CASE("a live call is cancelled for all equal calls of its principal, and for nobody else", "[service]") {
    Functions functions;
    Calls calls(functions.registry);
    const std::string key = GENERATE("", "k");
    const std::string method = key.empty() ? "cached" : "hold";
    const auto first = calls.started(method, {1}, key), equal = calls.started(method, {1}, key);
    auto of_another = calls.start(method, {1}, key, "uid:2");
    REQUIRE(functions.started.wait(2));
    const auto list = calls.dispatcher.live_calls("uid:1");
    REQUIRE(list.size() == 1);
    CHECK_FALSE(calls.dispatcher.cancel(list.front().id, "uid:2"));
    CHECK(calls.dispatcher.cancel(list.front().id, "uid:1"));
    CHECK(Calls::end_of(*first.waiter) == kCancelled);
    CHECK(Calls::end_of(*equal.waiter) == kCancelled);
    REQUIRE(functions.cancelled.wait());
    CHECK(calls.dispatcher.live_calls(std::nullopt).size() == 1);
    functions.go.set();
    CHECK(Calls::end_of(*std::get<runtime::StartedCall>(of_another).waiter).is_number_integer());
    CHECK(functions.count == 2);
    CHECK(functions.cancelled.count() == 1);
}

TEST_CASE("a live task is cancelled for the equal calls that joined its run, also after the task has ended",
          "[service]") {
    Functions functions;
    Calls calls(functions.registry);
    const auto id = std::get<std::string>(calls.submit("cached", {1}));
    REQUIRE(functions.started.wait());
    const auto joined = calls.started("cached", {1});
    const auto later = std::get<std::string>(calls.submit("cached", {1}));
    const auto list = calls.dispatcher.live_calls("uid:1");
    REQUIRE(list.size() == 1);
    const bool ended = GENERATE(false, true);
    if (ended) {
        calls.dispatcher.tasks().cancel(id, "uid:1");
        CHECK(functions.cancelled.count() == 0);  // the other call waits
    }
    CHECK(calls.dispatcher.cancel(list.front().id, "uid:1"));
    CHECK(functions.cancelled.wait());
    CHECK(Calls::end_of(*joined.waiter) == kCancelled);
    CHECK(calls.ended(id).state == tasks::TaskState::cancelled);
    CHECK(calls.ended(later).state == tasks::TaskState::failed);
}
