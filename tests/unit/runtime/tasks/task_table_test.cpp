// What tasks are, who may see them, how they end, and who waits for them.

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <limits>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "support/event.hpp"
#include "task_fixture.hpp"

using namespace shared_tensor;
using namespace shared_tensor::tasks;
using namespace shared_tensor::test;
using namespace std::chrono_literals;

namespace {

Ids newest_first(const Ids& created) { return {created.rbegin(), created.rend()}; }

}  // namespace

TEST_CASE("a task ends once, as its outcome or its cancel says: what comes after is dropped", "[tasks]") {
    Tasks tasks;
    const auto id = tasks.make();
    if (GENERATE(true, false)) {  // it may also end before it was said to run
        tasks.table.started(id);
        CHECK(tasks.state(id) == TaskState::running);
    }
    const auto result = GENERATE(outcome(1), failure(), OutcomePointer());
    result == nullptr ? static_cast<void>(tasks.table.cancel(id, std::nullopt)) : tasks.table.finish(id, result);
    tasks.table.started(id);
    tasks.table.progress(id, 0.5, "late");
    tasks.table.finish(id, outcome(2));
    tasks.table.finish(id, failure());
    tasks.table.cancel(id, std::nullopt);
    const auto after = tasks.info(id);
    CHECK(after.state == (result == nullptr  ? TaskState::cancelled
                          : result->failed() ? TaskState::failed
                                             : TaskState::completed));
    CHECK(after.outcome == result);
    CHECK(after.message.empty());
    CHECK_FALSE(after.fraction);
    CHECK_THROWS_AS(tasks.table.finish(tasks.make(), nullptr), std::logic_error);
}

TEST_CASE("progress is kept from 0 to 1, moves updated_at, and what is no number leaves it as it was", "[tasks]") {
    Tasks tasks;
    const auto id = tasks.running();
    tasks.clock.advance(3s);
    tasks.table.progress(id, 0.25, "a quarter");
    CHECK(tasks.info(id).message == "a quarter");
    CHECK(tasks.info(id).updated_at - tasks.info(id).created_at == 3s);
    for (const auto& [fraction, shown] :
         {std::pair{0.25, 0.25}, {7, 1.0}, {-1, 0.0}, {0.5, 0.5}, {std::numeric_limits<double>::quiet_NaN(), 0.5}}) {
        tasks.table.progress(id, fraction, "now");
        CHECK(tasks.info(id).fraction == shown);
        CHECK(tasks.info(id).message == "now");
    }
    tasks.table.progress(id, 0, std::string(1024, 'a'));
    CHECK(tasks.info(id).message.size() == 1024);
    std::string umlauts = "a";  // each two bytes: the limit falls into the middle of one
    for (int i = 0; i < 600; ++i)
        umlauts += "\xc3\xa4";
    tasks.table.progress(id, 0, umlauts);
    CHECK(tasks.info(id).message == umlauts.substr(0, 1023));
}

TEST_CASE("cancel calls a task's cancel function once, which may use the table, and none of a task that ended",
          "[tasks][cancel]") {
    Tasks tasks;
    std::string id;
    std::vector<TaskState> seen;
    auto owned = std::make_shared<int>();
    const std::weak_ptr<int> watched = owned;
    id = tasks.make("uid:1", [&, owned = std::move(owned)] {
        tasks.table.finish(id, outcome());
        seen.push_back(tasks.state(id));
    });
    const bool has_ended = GENERATE(false, true);
    if (has_ended) tasks.table.finish(id, outcome());
    for (int i = 0; i < 2; ++i)
        CHECK(tasks.table.cancel(id, "uid:1")->state == (has_ended ? TaskState::completed : TaskState::cancelled));
    CHECK(seen == (has_ended ? std::vector<TaskState>{} : std::vector{TaskState::cancelled}));
    CHECK(watched.expired());  // the function and what it owns are gone
}

TEST_CASE("states have the protocol's names, both ways", "[tasks]") {
    for (const auto state :
         {TaskState::pending, TaskState::running, TaskState::completed, TaskState::failed, TaskState::cancelled}) {
        CHECK(parse_task_state(to_string(state)) == state);
        CHECK(is_terminal(state) == (state != TaskState::pending && state != TaskState::running));
    }
    CHECK(to_string(TaskState::cancelled) == "cancelled");
    CHECK_FALSE(parse_task_state("canceled"));
}

TEST_CASE("close cancels all unfinished tasks, keeps the finished ones, and takes no new one", "[tasks]") {
    Tasks tasks;
    int called = 0;
    const auto waiting = tasks.make("uid:1", [&] { ++called; });
    const auto running = tasks.running(), done = tasks.finished();
    tasks.table.close();
    CHECK(called == 1);
    CHECK(tasks.state(waiting) == TaskState::cancelled);
    CHECK(tasks.state(running) == TaskState::cancelled);
    CHECK(tasks.state(done) == TaskState::completed);
    CHECK(tasks.rejects_new());
}

TEST_CASE("a list shows tasks newest first, of one owner or state if wanted, and stats count them", "[tasks][list]") {
    Tasks tasks;
    const auto pending = tasks.make(), theirs = tasks.make("uid:2"), running = tasks.running();
    const auto done = tasks.finished(outcome(10, 20)), failed = tasks.finished(failure());
    CHECK(tasks.list() == Ids{failed, done, running, theirs, pending});
    const auto of = [&](std::optional<std::string> owner, std::optional<TaskState> state) {
        return tasks.list({.owner = std::move(owner), .state = state, .cursor = {}});
    };
    CHECK(of("uid:1", {}) == Ids{failed, done, running, pending});
    CHECK(of("uid:3", {}).empty());
    CHECK(of({}, TaskState::running) == Ids{running});
    CHECK(of({}, TaskState::pending) == Ids{theirs, pending});
    CHECK(of("uid:2", TaskState::completed).empty());
    CHECK(of("uid:1", TaskState::cancelled).empty());
    const auto stats = tasks.table.stats();
    CHECK(stats.pending == 2);
    CHECK(stats.running == 1);
    CHECK(stats.finished == 2);
    CHECK(stats.host_bytes == 10);
    CHECK(stats.device_bytes == 20);
}

TEST_CASE("pages follow one another without gaps or repeats", "[tasks][list]") {
    Tasks tasks;
    Ids created, seen;
    for (int i = 0; i < 20; ++i)
        created.push_back(i % 2 == 0 ? tasks.finished() : tasks.make());
    TaskFilter filter{.owner = "uid:1", .state = {}, .cursor = {}, .limit = 10};
    for (int pages = 1; pages == 1 || !filter.cursor.empty(); ++pages) {
        REQUIRE(pages <= 2);  // the second one ends with the last task: there is no third
        for (const auto& id : tasks.list(filter))
            seen.push_back(id);
        filter.cursor = tasks.table.list(filter).next_cursor;
    }
    CHECK(seen == newest_first(created));
    for (const auto* cursor : {"x", "-1", "1x", "99999999999999999999999", "0"}) {  // no list gave these
        const auto page = tasks.table.list({.owner = {}, .state = {}, .cursor = cursor});
        CHECK(page.tasks.empty());
        CHECK(page.next_cursor.empty());
    }
}

TEST_CASE("tasks that come or go between two pages disturb no other", "[tasks][list]") {
    Tasks tasks;
    Ids created;
    for (int i = 0; i < 4; ++i)
        created.push_back(tasks.make());
    const auto brief = tasks.make_for(1s), newest = tasks.make();
    const auto first = tasks.table.list({.owner = {}, .state = {}, .cursor = {}, .limit = 2});
    REQUIRE(first.tasks.back().id == brief);
    tasks.table.finish(brief, outcome());  // the one that the cursor stands on
    tasks.clock.advance(1s);
    tasks.table.expire();
    tasks.make();
    CHECK(tasks.list({.owner = {}, .state = {}, .cursor = first.next_cursor}) == newest_first(created));
}

TEST_CASE("a page holds 100 tasks unless asked for, 1 at least and 1000 at most", "[tasks][list]") {
    Tasks tasks;
    for (int i = 0; i < 1001; ++i)
        tasks.make();
    CHECK(tasks.list().size() == 100);
    for (const auto& [limit, size] : {std::pair<std::size_t, std::size_t>{0, 1}, {5000, 1000}})
        CHECK(tasks.list({.owner = {}, .state = {}, .cursor = {}, .limit = limit}).size() == size);
}

TEST_CASE("cancel and close wake those who wait", "[tasks][wait]") {
    Tasks tasks;
    const auto id = tasks.make();
    const bool closes = GENERATE(false, true);
    std::jthread other([&] { closes ? tasks.table.close() : static_cast<void>(tasks.table.cancel(id, "uid:1")); });
    CHECK(tasks.table.wait(id, std::nullopt, patience())->state == TaskState::cancelled);
}

TEST_CASE("a wait ends at its deadline, or when its caller gives up", "[tasks][wait]") {
    Tasks tasks;
    const auto id = tasks.running();
    for (const SteadyTime deadline : {real_clock().now() + 1ms, SteadyTime::min()})
        CHECK(tasks.table.wait(id, std::nullopt, deadline)->state == TaskState::running);
    int asked = 0;
    CHECK(tasks.table.wait(id, std::nullopt, SteadyTime::max(), [&] { return ++asked == 2; })->state ==
          TaskState::running);
    CHECK(asked == 2);
}

TEST_CASE("who waits sees the end of a task that is not kept", "[tasks][wait]") {
    Tasks tasks;
    const auto id = tasks.make_for(0ms);
    const auto result = outcome();
    Event waits;
    std::jthread other([&] {
        waits.wait();
        tasks.table.finish(id, result);
    });
    const auto info = tasks.table.wait(id, std::nullopt, patience(), [&] {
        waits.set();  // asked after the first half second: the waiter is registered by then
        return false;
    });
    REQUIRE(info);
    CHECK(info->outcome == result);
    CHECK_FALSE(tasks.knows(id));
}
