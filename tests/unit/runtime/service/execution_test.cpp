#include "runtime/calls/execution.hpp"

#include <catch2/catch_test_macros.hpp>
#include <new>
#include <thread>

#include "unit/runtime/service/call_helpers.hpp"

using namespace shared_tensor;
using namespace shared_tensor::test;
using namespace std::chrono_literals;
using runtime::Execution;

namespace {

constexpr int kCancelled = -32004;

/// Sleeps until it is cancelled.
struct Sleeper {
    Event asleep, awake;
    OneFunction function{[this](Context& context) {
        asleep.set();
        context.sleep_until(patience());
        awake.set();
        context.check_cancelled();
    }};
};

}  // namespace

TEST_CASE("everybody who joined gets the one outcome", "[service]") {
    int count = 0;
    OneFunction function([&] { return ++count; });
    const auto execution = function.execution();
    const auto one = execution->join(), two = execution->join();
    execution->run();
    execution->run();
    CHECK(one->wait_until(patience())->value()->json == 1);
    CHECK(two->wait_until(patience()) == one->wait_until(patience()));
    CHECK(execution->join()->wait_until(patience())->value()->json == 1);
}

TEST_CASE("a run that was cancelled before it began never runs", "[service]") {
    bool ran = false;
    OneFunction function([&] { ran = true; });
    const auto execution = function.execution();
    int hooks = 0;
    execution->on_cancelled([&] { ++hooks; });
    execution->cancel();
    execution->cancel();
    execution->run();
    CHECK_FALSE(ran);
    CHECK(hooks == 1);
    CHECK(code_of(execution->outcome()) == kCancelled);
}

TEST_CASE("the last waiter to leave cancels the run", "[service]") {
    OneFunction function([] {});
    const auto execution = function.execution();
    auto one = execution->join(), two = execution->join();
    one.reset();
    CHECK(execution->outcome() == nullptr);
    two.reset();
    CHECK(code_of(execution->outcome()) == kCancelled);
    CHECK(execution->join() == nullptr);
}

TEST_CASE("a run that is done can be joined for its outcome, whatever is cancelled later", "[service]") {
    OneFunction function([] { return 1; });
    const auto execution = function.execution();
    execution->join().reset();  // before: cancels
    const auto other = function.execution();
    auto waiter = other->join();
    other->run();
    waiter.reset();
    other->cancel();
    REQUIRE(other->join() != nullptr);
    CHECK(other->join()->wait_until(patience())->value()->json == 1);
}

TEST_CASE("cancelling wakes a function that sleeps, and its outcome is its own", "[service]") {
    Sleeper sleeper;
    const auto execution = sleeper.function.execution();
    const auto waiter = execution->join();
    std::jthread worker([&] { execution->run(); });
    REQUIRE(sleeper.asleep.wait());
    execution->cancel();
    CHECK(sleeper.awake.wait());
    CHECK(code_of(waiter->wait_until(patience())) == kCancelled);
    CHECK(execution->join() == nullptr);
}

TEST_CASE("cancelling with an outcome ends the run at once and wakes its function too", "[service]") {
    Event blocked, unblock;
    Event asleep, awake;
    OneFunction function([&](Context& context) {
        asleep.set();
        context.sleep_until(patience());
        awake.set();
        blocked.set();
        unblock.wait();
        return 1;
    });
    const auto execution = function.execution();
    const auto waiter = execution->join();
    int hooks = 0;
    execution->on_cancelled([&] { ++hooks; });
    std::jthread worker([&] { execution->run(); });
    REQUIRE(asleep.wait());
    execution->cancel(runtime::make_outcome(json_rpc::shutting_down()));
    CHECK(code_of(waiter->wait_until(patience())) == -32009);
    CHECK(awake.wait());
    CHECK(hooks == 1);
    unblock.set();
    worker.join();
    CHECK(code_of(execution->outcome()) == -32009);
}

TEST_CASE("a waiter gives up without harm to the others", "[service]") {
    OneFunction function([] { return 1; });
    const auto execution = function.execution();
    const auto one = execution->join(), two = execution->join();
    one->abandon();
    CHECK(one->wait_until(patience()) == nullptr);
    CHECK(one->abandoned());
    execution->run();
    CHECK(two->wait_until(patience())->value()->json == 1);
}

TEST_CASE("giving up wakes a waiter that sleeps", "[service]") {
    OneFunction function([] {});
    const auto execution = function.execution();
    const auto waiter = execution->join();
    std::jthread other([&] { waiter->abandon(); });
    CHECK(waiter->wait_until(SteadyTime::max()) == nullptr);
}

TEST_CASE("a waiter's deadline returns nothing", "[service]") {
    OneFunction function([] {});
    CHECK(function.execution()->join()->wait_until(SteadyTime()) == nullptr);
}

TEST_CASE("observers are told of start, progress and end, late ones of what has been", "[service]") {
    OneFunction function([](Context& context) {
        context.progress(0.25, "a quarter");
        context.progress(7);
        return 1;
    });
    const auto execution = function.execution();
    std::string told;
    const auto observer = [&] {
        return Execution::Observer{
            [&] { told += "started "; },
            [&](double fraction, std::string_view message) {
                told += std::to_string(static_cast<int>(fraction * 100)) + std::string(message);
                told += ' ';
            },
            [&](const runtime::OutcomePointer& outcome) { told += outcome->value()->json.dump(); }};
    };
    execution->observe(observer());
    execution->run();
    CHECK(told == "started 25a quarter 100 1");
    told.clear();
    execution->observe(observer());
    CHECK(told == "1");
}

TEST_CASE("all observers are told of the end, though one of them finds no memory", "[service]") {
    OneFunction function([] { return 1; });
    const auto execution = function.execution();
    execution->observe({{}, {}, [](const runtime::OutcomePointer&) { throw std::bad_alloc(); }});
    runtime::OutcomePointer told;
    execution->observe({{}, {}, [&](const runtime::OutcomePointer& outcome) { told = outcome; }});
    execution->run();
    REQUIRE(told != nullptr);
    CHECK(told->value()->json == 1);
}

TEST_CASE("an observer that comes after a report of progress hears the last one", "[service]") {
    Event reported, release;
    OneFunction function([&](Context& context) {
        context.progress(0.25, "a quarter");
        context.progress(0.5, "half");
        reported.set();
        release.wait();
    });
    const auto execution = function.execution();
    const auto waiter = execution->join();
    std::jthread worker([&] { execution->run(); });
    REQUIRE(reported.wait());
    std::vector<std::string> heard;
    execution->observe({{}, [&](double, std::string_view message) { heard.emplace_back(message); }, {}});
    release.set();
    worker.join();
    CHECK(heard == std::vector<std::string>{"half"});
}

TEST_CASE("the first outcome stays", "[service]") {
    OneFunction function([] { return 1; });
    const auto execution = function.execution();
    execution->finish(outcome_of(2));
    execution->finish(outcome_of(3));
    execution->run();
    CHECK(execution->outcome()->value()->json == 2);
}

TEST_CASE("a function knows who called", "[service]") {
    std::string seen;
    OneFunction function([&](Context& context) {
        const Caller& caller = context.caller();
        seen = std::string(caller.principal) + ' ' + std::string(caller.session) + ' ' + std::string(caller.task);
    });
    function.execution()->run();
    CHECK(seen == "uid:1 s-1 t-1");
}

TEST_CASE("an observer may hold the last Waiter on the run it watches", "[service]") {
    OneFunction function([] {});
    auto execution = function.execution();
    std::weak_ptr<Execution> gone = execution;
    std::shared_ptr<Execution::Waiter> waiter = execution->join();
    execution->observe({{}, {}, [waiter](const runtime::OutcomePointer&) {}});
    waiter.reset();
    execution->run();
    execution.reset();
    CHECK(gone.expired());
}
