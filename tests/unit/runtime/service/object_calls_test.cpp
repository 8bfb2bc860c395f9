// Calls that take and return objects, in the dispatcher.

#include <shared_tensor/object.hpp>

#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <string>
#include <vector>

#include "runtime/tables/object_table.hpp"
#include "unit/runtime/service/call_helpers.hpp"

namespace object_calls_test {

struct Counter {
    int count = 0;
};
struct Other {};

}  // namespace object_calls_test

SHARED_TENSOR_OBJECT("counter", object_calls_test::Counter);
SHARED_TENSOR_OBJECT("other", object_calls_test::Other);
SHARED_TENSOR_OBJECT("list of counters", std::vector<std::pair<int, object_calls_test::Counter>>);

using namespace shared_tensor;
using namespace shared_tensor::test;
using namespace std::chrono_literals;
using object_calls_test::Counter;
using object_calls_test::Other;

namespace {

/// {"$object": {"id": "counter"}} is the one, "other" another type.
class Things final : public codec::References {
public:
    std::shared_ptr<const codec::Value> value(const Json& name) override {
        if (name != "result") throw codec::Unresolved(json_rpc::unknown_or_expired("tensor", "e"));
        return std::make_shared<const codec::Value>(codec::Value{{{"$object", 0}}, {}, {counter.cell()}});
    }
    ObjectPointer object(const Json& handle) override {
        if (handle["id"] == "counter") return counter.cell();
        if (handle["id"] == "other") return other.cell();
        throw codec::Unresolved(json_rpc::unknown_or_expired("object", "e"));
    }
    Shared<Counter> counter = make_shared_object<Counter>();
    Shared<Other> other = make_shared_object<Other>();
};

struct Functions {
    Event started, go;
    std::atomic<int> running{0}, peak{0};
    Registry registry;

    Functions() {
        registry.add("make", [](int count) { return make_shared_object<Counter>(Counter{count}); });
        registry.add(
            "add", [](const Shared<Counter>& counter, int by) { return counter->count += by; }, arg("counter"),
            arg("by") = 1);
        registry.add("get", [](const Shared<const Counter>& counter) { return counter->count; });
        registry.add(
            "get_cached", [](const Shared<const Counter>& counter) { return counter->count; }, cached(1h));
        registry.add(
            "make_cached", [](int count) { return make_shared_object<Counter>(Counter{count}); }, cached(1h));
        registry.add("read", [this](const Shared<const Counter>&) { return hold(); });
        registry.add("write", [this](const Shared<Counter>&) { return hold(); });
        registry.add("type", [](const Object& object) { return std::string(object.type()); });
    }
    ~Functions() { go.set(); }

private:
    int hold() {
        const int now = ++running;
        for (int most = peak; most < now && !peak.compare_exchange_weak(most, now);) {
        }
        started.set();
        go.wait();
        return running--;
    }
};

struct ObjectCalls : Calls {
    using Calls::Calls;
    /// A single handle or reference stands for one positional argument.
    std::variant<runtime::StartedCall, json_rpc::Error> begin(const std::string& method, const Json& given) {
        const bool is_value = given.contains("$object") || given.contains("$ref");
        const Json params = is_value ? Json::array({given}) : given;
        return dispatcher.call({method, params, {"uid:1", {}, {}}, std::nullopt, {}, port, &things});
    }
    runtime::OutcomePointer outcome(const std::string& method, const Json& params) {
        auto call = begin(method, params);
        if (auto* error = std::get_if<json_rpc::Error>(&call)) return runtime::make_outcome(*error);
        return std::get<runtime::StartedCall>(call).waiter->wait_until(patience());
    }
    Json result(const std::string& method, const Json& params) {
        const auto ended = outcome(method, params);
        return ended->failed() ? Json{{"error", ended->error()->code}, {"data", ended->error()->data}}
                               : ended->value()->json;
    }
    Things things;
};

const Json kCounter{{"$object", {{"id", "counter"}}}};
const Json kOther{{"$object", {{"id", "other"}}}};

runtime::DispatcherOptions workers(std::size_t count) {
    runtime::DispatcherOptions options;
    options.pool.workers = count;
    return options;
}

}  // namespace

TEST_CASE("a function makes, takes and changes an object", "[service][objects]") {
    Functions functions;
    ObjectCalls calls(functions.registry);
    const auto made = calls.outcome("make", {7});
    REQUIRE(made->value()->objects.size() == 1);
    CHECK(made->value()->json == Json{{"$object", 0}});
    CHECK(made->value()->objects[0]->type == "counter");
    CHECK(static_cast<Counter*>(made->value()->objects[0]->value.get())->count == 7);
    CHECK(calls.result("add", {kCounter, 2}) == 2);
    CHECK(calls.result("add", Json{{"counter", kCounter}}) == 3);
    CHECK(calls.result("get", {Json{{"$ref", "result"}}}) == 3);
    CHECK(calls.result("type", {kOther}) == "other");
}

TEST_CASE("an object of another type, or none, is rejected before anything runs", "[service][objects]") {
    Functions functions;
    ObjectCalls calls(functions.registry);
    CHECK(calls.result("add", {kOther})["data"] ==
          Json{{"parameter", "counter"}, {"expected", "object of type counter"}, {"got", "an object of type other"}});
    CHECK(calls.result("add", {5})["error"] == -32602);
    const Json gone = calls.result("get", {Json{{"$object", {{"id", "gone"}}}}});
    CHECK(gone == Json{{"error", -32005}, {"data", {{"kind", "object"}, {"epoch", "e"}}}});
    CHECK(calls.result("get", {Json{{"$ref", "nothing"}}})["data"]["kind"] == "tensor");
}

TEST_CASE("concurrent users run at once, an exclusive one alone and in its turn", "[service][objects]") {
    Functions functions;
    ObjectCalls calls(functions.registry, workers(4));
    std::vector<runtime::StartedCall> started;
    const auto begin = [&](const std::string& method) {
        const Json params = Json::array({kCounter});
        started.push_back(std::get<runtime::StartedCall>(calls.begin(method, params)));
    };
    begin("read");
    begin("read");
    REQUIRE(functions.started.wait(2));
    begin("write");
    begin("read");
    CHECK(calls.dispatcher.pool().stats().queued == 2);
    CHECK(calls.dispatcher.pool().stats().busy == 2);
    CHECK(functions.peak == 2);
    functions.go.set();
    for (const auto& call : started)
        CHECK(call.waiter->wait_until(patience()) != nullptr);
    CHECK(functions.peak == 2);
}

TEST_CASE("neither calls with objects nor objects are cached", "[service][objects]") {
    Functions functions;
    ObjectCalls calls(functions.registry);
    CHECK(calls.result("get_cached", {kCounter}) == 0);
    calls.things.counter->count = 5;
    CHECK(calls.result("get_cached", {kCounter}) == 5);
    CHECK(calls.result("get_cached", {Json{{"$ref", "result"}}}) == 5);
    const auto one = calls.outcome("make_cached", {1}), other = calls.outcome("make_cached", {1});
    CHECK(one->value()->objects[0] != other->value()->objects[0]);
    CHECK(calls.dispatcher.cache().stats().entries == 0);
}

TEST_CASE("a Shared of something that may be changed may be looked at, and is never empty", "[service][objects]") {
    const auto counter = make_shared_object<Counter>(Counter{3});
    const Shared<const Counter> seen = counter;
    counter->count = 4;
    CHECK(seen->count == 4);
    CHECK(seen.cell() == counter.cell());
    CHECK_THROWS_AS(Shared<Counter>(std::shared_ptr<Counter>()), std::invalid_argument);
    CHECK((Shared<std::vector<std::pair<int, Counter>>>(std::make_shared<std::vector<std::pair<int, Counter>>>())
               .cell()
               ->type == "list of counters"));
}
