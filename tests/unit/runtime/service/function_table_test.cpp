#include "runtime/functions/function_table.hpp"

#include <algorithm>
#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <thread>

#include "runtime/functions/open_rpc.hpp"
#include "unit/runtime/service/call_helpers.hpp"

using namespace shared_tensor;
using namespace shared_tensor::runtime;

namespace {

std::vector<FunctionPointer> functions(std::initializer_list<const char*> names) {
    Registry registry;
    for (const char* name : names)
        registry.add(name, [] { return 1; });
    return registry.functions();
}

std::vector<std::string> names(const FunctionTable& table) {
    std::vector<std::string> all;
    for (const auto& entry : table.all())
        all.emplace_back(entry->shared->name());
    return all;
}

using Names = std::vector<std::string>;

}  // namespace

TEST_CASE("Functions come into a table, and go again", "[service][functions]") {
    FunctionTable table{Registry()};
    CHECK(table.find("m.f") == nullptr);
    const auto model = functions({"m.f", "m.g"});
    const std::uint64_t before = table.version();
    table.replace({}, model);
    CHECK(table.version() != before);
    CHECK(names(table) == Names{"m.f", "m.g"});
    const auto held = table.find("m.f");
    table.replace(model, {});
    CHECK(table.size() == 0);
    CHECK(held->shared->name() == "m.f");  // for a call that has it
    table.replace(model, {});              // they are gone already
}

TEST_CASE("A function does not take the name of another one, and nothing of its kind comes then",
          "[service][functions]") {
    Registry registry;
    registry.add("m.g", [] { return 1; });
    FunctionTable table(registry);
    try {
        table.replace({}, functions({"m.f", "m.g"}));
        FAIL("it was not rejected");
    } catch (const NameTaken& error) {
        CHECK(error.name() == "m.g");
        CHECK(std::string(error.what()).find("function_table_test.cpp:") != std::string::npos);
    }
    CHECK(names(table) == Names{"m.g"});
    table.replace(functions({"m.g"}), {});  // another one of that name
    CHECK(names(table) == Names{"m.g"});
}

TEST_CASE("Functions whose names are the daemon's own come into no table", "[service][functions]") {
    class Reserved final : public FunctionRecord {
    public:
        std::string_view name() const override { return "model.f"; }
        const FunctionOptions& options() const override { return options_; }
        std::string where() const override { return "here"; }
        std::span<const ParameterInfo> parameters() const override { return {}; }
        void parameter_schema(std::size_t, ValueWriter) const override {}
        void default_value(std::size_t, ValueWriter) const override {}
        void result_schema(ValueWriter) const override {}
        Binding bind(const ValueSource&, std::span<const ValueSource::Node>) const noexcept override { return {}; }

    private:
        FunctionOptions options_;
    };
    FunctionTable table{Registry()};
    CHECK_THROWS_AS(table.replace({}, {std::make_shared<Reserved>()}), std::invalid_argument);
    CHECK(table.size() == 0);
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

TEST_CASE("The document of a table is made once, and anew when functions came or went", "[service][functions]") {
    FunctionTable table{Registry()};
    const OpenRpc open_rpc(table, "1.2.3");
    const auto empty = open_rpc.document();
    CHECK(empty->json["methods"].empty());
    CHECK(open_rpc.document() == empty);
    const auto model = functions({"m.f"});
    table.replace({}, model);
    const auto with_model = open_rpc.document();
    CHECK(with_model->json["methods"][0]["name"] == "m.f");
    CHECK(with_model->text == with_model->json.dump());
    table.replace(model, {});
    CHECK(open_rpc.document()->json == empty->json);
}

TEST_CASE("Calls that ended keep no function, though their keys are known and their outcomes read",
          "[service][functions]") {
    using test::Calls;
    const auto model = functions({"m.f", "m.late"});
    Calls calls{Registry()};
    calls.dispatcher.functions().replace({}, model);
    std::vector<std::weak_ptr<const FunctionRecord>> gone(model.begin(), model.end());
    const auto held = calls.started("m.f", nullptr, "key");
    CHECK(Calls::end_of(*held.waiter) == 1);
    calls.dispatcher.functions().replace(model, {});
    const auto only_here = [&] {
        return std::all_of(gone.begin(), gone.end(), [](const auto& function) { return function.use_count() == 1; });
    };
    const auto end = real_clock().now() + std::chrono::seconds(10);
    while (!only_here() && real_clock().now() < end)
        std::this_thread::yield();  // the worker may be at its end still
    CHECK(only_here());
    CHECK(calls.run("m.f", nullptr, "key") == -32601);
}

TEST_CASE("A call that waits keeps its function until it is over or given up", "[service][functions]") {
    using test::Calls;
    Registry registry;
    registry.add(
        "m.f", [] { return 1; }, concurrency(1));
    // not until its deadline: that is by the clock that stands still, and may lie behind the real one
    registry.add("hold", [](Context& context) { context.sleep_until(test::patience()); });
    const auto all = registry.functions();
    runtime::DispatcherOptions options;
    options.pool.workers = 1;
    Calls calls(Registry(), options);
    calls.dispatcher.functions().replace({}, all);
    const auto holds = calls.started("hold", nullptr);
    auto waits = calls.started("m.f", nullptr, "key");
    calls.dispatcher.functions().replace(all, {});
    const FunctionPointer& waiting = all[1];
    CHECK(waiting->name() == "m.f");
    const auto uses = waiting.use_count();
    waits.waiter->execution()->cancel();
    CHECK(waiting.use_count() < uses);
    holds.waiter->execution()->cancel();
}
