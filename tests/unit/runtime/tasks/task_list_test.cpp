#include <catch2/catch_test_macros.hpp>
#include <string>
#include <vector>

#include "table_fixture.hpp"

using namespace shared_tensor;
using namespace shared_tensor::tasks;
using namespace shared_tensor::test;
using namespace std::chrono_literals;
using Ids = std::vector<std::string>;

namespace {

Ids ids_of(const TaskPage& page) {
    Ids ids;
    for (const auto& task : page.tasks)
        ids.push_back(task.id);
    return ids;
}

Ids newest_first(const Ids& created) { return {created.rbegin(), created.rend()}; }

}  // namespace

TEST_CASE("a list shows tasks newest first, whatever their state", "[tasks][list]") {
    TaskTable table;
    Ids created;
    for (int i = 0; i < 6; ++i)
        created.push_back(table.create(task_of()).value());
    table.started(created[0]);
    table.started(created[4]);
    table.finish(created[4], outcome());
    table.finish(created[2], failure());
    table.cancel(created[3], std::nullopt);
    CHECK(ids_of(table.list({})) == newest_first(created));
}

TEST_CASE("a list shows one owner's tasks only", "[tasks][list]") {
    TaskTable table;
    const auto mine = table.create(task_of("uid:1")).value();
    table.create(task_of("uid:2"));
    CHECK(ids_of(table.list({.owner = "uid:1", .state = {}, .cursor = {}})) == Ids{mine});
    CHECK(table.list({.owner = "uid:3", .state = {}, .cursor = {}}).tasks.empty());
    CHECK(table.list({}).tasks.size() == 2);
}

TEST_CASE("a list shows tasks of one state only", "[tasks][list]") {
    TaskTable table;
    table.create(task_of());
    const auto running = table.create(task_of()).value();
    table.started(running);
    const auto done = finished(table);
    CHECK(ids_of(table.list({.owner = {}, .state = TaskState::running, .cursor = {}})) == Ids{running});
    CHECK(ids_of(table.list({.owner = "uid:1", .state = TaskState::completed, .cursor = {}})) == Ids{done});
    CHECK(table.list({.owner = {}, .state = TaskState::failed, .cursor = {}}).tasks.empty());
}

TEST_CASE("pages follow one another without gaps or repeats", "[tasks][list]") {
    TaskTable table;
    Ids created, seen;
    for (int i = 0; i < 25; ++i)
        created.push_back(i % 2 == 0 ? finished(table) : table.create(task_of()).value());
    TaskFilter filter{.owner = "uid:1", .state = {}, .cursor = {}, .limit = 10};
    int pages = 0;
    do {
        const auto page = table.list(filter);
        for (const auto& id : ids_of(page))
            seen.push_back(id);
        filter.cursor = page.next_cursor;
        ++pages;
    } while (!filter.cursor.empty());
    CHECK(pages == 3);
    CHECK(seen == newest_first(created));
}

TEST_CASE("a page that ends with the last task has no next one", "[tasks][list]") {
    TaskTable table;
    for (int i = 0; i < 10; ++i)
        table.create(task_of());
    CHECK(table.list({.owner = {}, .state = {}, .cursor = {}, .limit = 10}).next_cursor.empty());
}

TEST_CASE("tasks that come or go between two pages disturb no other", "[tasks][list]") {
    ManualClock clock;
    TaskTable table({}, clock);
    Ids created;
    for (int i = 0; i < 4; ++i)
        created.push_back(table.create(task_of()).value());
    const auto brief = table.create({"work", "uid:1", 1s, {}}).value();
    const auto newest = table.create(task_of()).value();
    const auto first = table.list({.owner = {}, .state = {}, .cursor = {}, .limit = 2});
    REQUIRE(ids_of(first) == Ids{newest, brief});
    table.finish(brief, outcome());  // the one that the cursor stands on
    clock.advance(1s);
    table.expire();
    table.create(task_of());
    CHECK(ids_of(table.list({.owner = {}, .state = {}, .cursor = first.next_cursor})) == newest_first(created));
}

TEST_CASE("a cursor that no list gave finds nothing", "[tasks][list]") {
    TaskTable table;
    table.create(task_of());
    for (const auto* cursor : {"x", "-1", "1x", "99999999999999999999999", "0"}) {
        INFO(cursor);
        const auto page = table.list({.owner = {}, .state = {}, .cursor = cursor});
        CHECK(page.tasks.empty());
        CHECK(page.next_cursor.empty());
    }
}

TEST_CASE("a page holds 100 tasks unless asked for, 1 at least and 1000 at most", "[tasks][list]") {
    TaskTable table;
    for (int i = 0; i < 1001; ++i)
        table.create(task_of());
    const auto size = [&](std::size_t limit) {
        return table.list({.owner = {}, .state = {}, .cursor = {}, .limit = limit}).tasks.size();
    };
    CHECK(table.list({}).tasks.size() == 100);
    CHECK(size(0) == 1);
    CHECK(size(5000) == 1000);
}
