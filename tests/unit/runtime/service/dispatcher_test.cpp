#include "runtime/calls/dispatcher.hpp"

#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <stop_token>
#include <thread>

#include "support/daemon.hpp"
#include "support/failing_memory.hpp"
#include "unit/runtime/service/call_helpers.hpp"

using namespace shared_tensor;
using namespace shared_tensor::test;
using namespace std::chrono_literals;

namespace {

constexpr int kInvalid = -32602, kCancelled = -32004;

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
        registry.add("brief", held, arg("x"), timeout(10ms));
        registry.add(
            "same", [](int x) { return x; }, arg("x"));
        registry.add("endless", held, arg("x"), timeout(std::chrono::milliseconds::max()),
                     cached(std::chrono::milliseconds::max()));
    }
    /// Waits while the holds end.
    ~Functions() { go.set(); }
};

/// A function of a process that is busy at the first call.
class BusyAtFirst final : public FunctionRecord {
public:
    std::string_view name() const override { return "busy_at_first"; }
    const FunctionOptions& options() const override { return options_; }
    std::string where() const override { return "here"; }
    std::span<const ParameterInfo> parameters() const override { return {}; }
    void parameter_schema(std::size_t, ValueWriter) const override {}
    void default_value(std::size_t, ValueWriter) const override {}
    void result_schema(ValueWriter) const override {}
    Binding bind(const ValueSource&, std::span<const ValueSource::Node>) const noexcept override {
        struct Call final : BoundCall {
            explicit Call(int number) : run_number(number) {}
            std::optional<CallFailure> run(Context&, ValueWriter result) noexcept override {
                CallFailure failure;
                failure.kind = CallFailure::Kind::busy;
                if (run_number == 0) return failure;
                result.integer(run_number);
                return {};
            }
            const int run_number;
        };
        return {std::make_unique<Call>(runs_++), {}};
    }

private:
    const FunctionOptions options_;
    mutable std::atomic<int> runs_{0};
};

}  // namespace

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

TEST_CASE("a key is free again after a run that was busy", "[service]") {
    Registry registry;
    registry.add(std::make_shared<const BusyAtFirst>());
    Calls calls(registry);
    CHECK(calls.run("busy_at_first", nullptr, "k") == -32001);
    CHECK(calls.run("busy_at_first", nullptr, "k") == 1);
    CHECK(calls.run("busy_at_first", nullptr, "k") == 1);
}

TEST_CASE("the longest times that can be written are long", "[service]") {
    Functions functions;
    functions.go.set();
    Calls calls(functions.registry);
    CHECK(calls.run("endless", {1}) == 0);
    calls.clock.advance(24h);
    CHECK(calls.run("endless", {1}) == 0);
}

TEST_CASE("a task is asked for again, and others rejected, without the loss of a task that has ended", "[service]") {
    Functions functions;
    runtime::DispatcherOptions options = workers(1, 0);
    options.tasks.max_tasks = 2;
    Calls calls(functions.registry, options);
    const auto submit = [&](const char* function, const char* key) {
        const Json arguments{1};
        auto made =
            calls.dispatcher.submit({function, arguments, {"uid:1", "s-1", {}}, std::nullopt, key, calls.port}, {});
        auto* info = std::get_if<std::optional<tasks::TaskInfo>>(&made);
        return info != nullptr && *info ? (*info)->id : std::string();
    };
    const std::string ended = submit("same", "a");
    CHECK(calls.ended(ended).state == tasks::TaskState::completed);
    REQUIRE(eventually([&] { return calls.dispatcher.pool().stats().busy == 0; }));  // it ends after its task
    const std::string runs = submit("hold", "b");
    REQUIRE(functions.started.wait());
    CHECK(submit("same", "c").empty());  // the only worker is busy, and nothing may wait
    CHECK(submit("hold", "b") == runs);
    CHECK(submit("same", "a") == ended);
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

TEST_CASE("a task that finds no memory leaves neither itself nor its key", "[service]") {
    Functions functions;
    functions.go.set();
    Calls calls(functions.registry);
    const Json arguments{1};
    std::optional<tasks::TaskInfo> task;
    const auto submit = [&] {
        auto made =
            calls.dispatcher.submit({"hold", arguments, {"uid:1", "s-1", {}}, std::nullopt, "k", calls.port}, {});
        if (std::holds_alternative<json_rpc::Error>(made)) throw std::bad_alloc();
        task = std::move(std::get<std::optional<tasks::TaskInfo>>(made));
    };
    int failures = 0;
    with_each_allocation_failing(submit, [&] {
        ++failures;
        const auto stats = calls.dispatcher.tasks().stats();
        CHECK(stats.pending + stats.running == 0);  // its function may have ended
    });
    CHECK(failures > 20);
    CHECK(calls.ended(task.value().id).state == tasks::TaskState::completed);
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

TEST_CASE("a function is brief after some brief runs; one that took milliseconds is forgotten within a hundred",
          "[service]") {
    using Runs = std::vector<std::pair<std::chrono::nanoseconds, int>>;
    for (const auto& [runs, brief] : std::vector<std::pair<Runs, bool>>{{{}, false},
                                                                        {{{20us, 2}}, false},
                                                                        {{{20us, 10}}, true},
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
    const auto id = calls.submit("hold", {1});
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
    const auto id = calls.submit("cached", {1});
    REQUIRE(functions.started.wait());
    const auto joined = calls.started("cached", {1});
    const auto later = calls.submit("cached", {1});
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

TEST_CASE("a call of an inline function outlives its caller", "[dispatcher]") {
    Registry registry;
    registry.add(
        "four", [] { return 4; }, execution::inline_);
    Calls calls(registry);
    struct NoGuard final : runtime::CallGuard {
        bool can_answer() const override { return true; }
        void begin(const std::shared_ptr<runtime::Execution>&, SteadyTime, bool) override { FAIL("it is guarded"); }
        void end() override {}
    } guard;
    const Json none;
    runtime::CallSpec spec{"four", none, {"uid:1", "s-1", {}}, std::nullopt, "key", calls.port};
    spec.guard = &guard;
    const auto call = calls.dispatcher.call(spec);
    CHECK(Calls::end_of(*std::get<runtime::StartedCall>(call).waiter) == 4);
}

TEST_CASE("who knows the outcome of a call with streams finds its place free", "[service]") {
    Functions functions;
    functions.go.set();
    Calls calls(functions.registry);
    const Json arguments{1};
    const runtime::CallSpec spec{"one", arguments, {"uid:1", "s-1", {}}, std::nullopt, {}, calls.port};
    const auto open = [&] { return calls.dispatcher.open_stream(spec, nullptr, [] {}); };
    auto run = std::get<runtime::StreamRun>(open());
    CHECK(std::holds_alternative<json_rpc::Error>(open()));
    bool is_free = false;
    run.execution()->observe({{}, {}, [&](const runtime::OutcomePointer& outcome) {
                                  CHECK(code_of(outcome) == 0);
                                  is_free = std::holds_alternative<runtime::StreamRun>(open());
                              }});
    run.run();
    CHECK(is_free);
}
