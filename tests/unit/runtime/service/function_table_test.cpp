#include "runtime/functions/function_table.hpp"

#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <thread>

#include "runtime/functions/open_rpc.hpp"
#include "unit/runtime/service/call_helpers.hpp"

using namespace shared_tensor;
using namespace shared_tensor::runtime;
using namespace std::chrono_literals;
using test::Calls;
using test::Json;

namespace {

using Names = std::vector<std::string>;

std::vector<FunctionPointer> functions(const Names& names) {
    Registry registry;
    for (const auto& name : names)
        registry.add(name, [] { return 1; });
    return registry.functions();
}

Names names(const FunctionTable& table) {
    Names all;
    for (const auto& entry : table.all())
        all.emplace_back(entry->shared->name());
    return all;
}

}  // namespace

TEST_CASE("Functions come into a table all or none, under names that nobody has, and go again",
          "[service][functions]") {
    Registry registry;
    registry.add("m.h", [] { return 1; });
    FunctionTable table(registry);
    const auto model = functions({"m.f", "m.g"});
    const std::uint64_t before = table.version();
    table.replace({}, model);
    CHECK(table.version() != before);
    CHECK(names(table) == Names{"m.f", "m.g", "m.h"});
    const auto held = table.find("m.f");
    for (int i = 0; i < 2; ++i) {  // they are gone already
        table.replace(model, {});
        CHECK(names(table) == Names{"m.h"});
    }
    CHECK(held->shared->name() == "m.f");  // for a call that has it
    CHECK(table.find("m.f") == nullptr);
    try {
        table.replace({}, functions({"m.f", "m.h"}));
        FAIL("it was not rejected");
    } catch (const NameTaken& error) {
        CHECK(error.name() == "m.h");
        CHECK(std::string(error.what()).find("function_table_test.cpp:") != std::string::npos);
    }
    for (const char* name : {"model.f", "log.tail"}) {
        const FunctionPointer reserved = detail::make_function_record(name, "here:1", [] { return 1; });
        CHECK_THROWS_AS(table.replace({}, {reserved}), std::invalid_argument);
    }
    table.replace(functions({"m.h"}), {});  // another one of that name
    CHECK(names(table) == Names{"m.h"});
}

TEST_CASE("Whoever looks while functions are replaced finds the ones or the others", "[service][functions]") {
    FunctionTable table{Registry()};
    const auto one = functions({"m.f", "m.only_one"}), other = functions({"m.f", "m.only_other"});
    table.replace({}, one);
    std::atomic<int> wrong{0};
    std::jthread reader([&](const std::stop_token& stop) {
        while (!stop.stop_requested()) {
            const auto all = names(table);
            if (all != Names{"m.f", "m.only_one"} && all != Names{"m.f", "m.only_other"}) ++wrong;
            if (table.find("m.f") == nullptr) ++wrong;
        }
    });
    for (int i = 0; i < 2'000; ++i) {
        table.replace(one, other);
        table.replace(other, one);
    }
    reader.request_stop();
    reader.join();
    CHECK(wrong == 0);
}

TEST_CASE("A call keeps its function until it has ended, though its key is known and its outcome read",
          "[service][functions]") {
    Registry registry;
    registry.add(
        "m.f", [] { return 1; }, concurrency(1));
    // not until its deadline: that is by the clock that stands still, and may lie behind the real one
    registry.add("hold", [](Context& context) { context.sleep_until(test::patience()); });
    const auto model = registry.functions();
    registry = Registry();
    Calls calls(registry, test::workers(1));
    calls.dispatcher.functions().replace({}, model);
    const auto ended = calls.started("m.f", nullptr, "key");
    CHECK(Calls::end_of(*ended.waiter) == 1);
    const auto holds = calls.started("hold", nullptr);
    const auto waits = calls.started("m.f", nullptr, "other key");
    calls.dispatcher.functions().replace(model, {});
    CHECK(calls.run("m.f", nullptr, "key") == -32601);
    for (std::size_t i : {1, 0}) {  // the one that waits, then the one that runs
        CHECK(model[i].use_count() > 1);
        (i == 1 ? waits : holds).waiter->execution()->cancel();
        const auto end = real_clock().now() + 10s;
        while (model[i].use_count() > 1 && real_clock().now() < end)
            std::this_thread::yield();  // the worker may be at its end still
        CHECK(model[i].use_count() == 1);
    }
}

TEST_CASE("The document tells of every function what a caller needs, and then of the server's own methods",
          "[service]") {
    Registry registry;
    registry.add(
        "f", [](int a, const std::string&) { return a * 1.0; }, arg("a"), arg("b") = "x", doc("Does."), concurrency(2),
        timeout(5s), cached(1s));
    registry.add(
        "a", [] {}, execution::task);
    const FunctionTable functions(registry);
    OpenRpc open_rpc(functions, "1.2.3", {{"Tensor", {{"type", "object"}}}});
    open_rpc.set_methods(Json::array({{{"name", "a.method"}}}));
    const Json document = open_rpc.document()->json;
    CHECK(document["openrpc"].get<std::string>().starts_with("1."));
    CHECK(document["info"]["version"] == "1.2.3");
    CHECK(document["components"]["schemas"]["Tensor"]["type"] == "object");
    REQUIRE(document["methods"].size() == 3);
    CHECK(document["methods"][0]["name"] == "a");
    CHECK(document["methods"][0]["x-execution"] == "task");
    CHECK(document["methods"][2]["name"] == "a.method");

    const Json& method = document["methods"][1];
    CHECK(method["summary"] == "Does.");
    CHECK(method["paramStructure"] == "either");
    CHECK(method["params"][0] == Json{{"name", "a"}, {"required", true}, {"schema", method["params"][0]["schema"]}});
    CHECK(method["params"][0]["schema"]["type"] == "integer");
    CHECK(method["params"][1]["required"] == false);
    CHECK(method["params"][1]["schema"]["default"] == "x");
    CHECK(method["result"]["schema"]["anyOf"][0]["type"] == "number");
    CHECK(method["x-concurrency"] == 2);
    CHECK(method["x-timeout-ms"] == 5000);
    CHECK(method["x-idempotent"] == true);
}
