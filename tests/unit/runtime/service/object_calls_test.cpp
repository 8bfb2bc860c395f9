// Calls that take and return objects, in the dispatcher.

#include <shared_tensor/object.hpp>

#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <string>
#include <utility>
#include <vector>

#include "unit/runtime/service/call_helpers.hpp"

namespace object_calls_test {

struct Counter {
    int count = 0;
};

}  // namespace object_calls_test

SHARED_TENSOR_OBJECT("counter", object_calls_test::Counter);
SHARED_TENSOR_OBJECT("pair of counters", std::pair<object_calls_test::Counter, object_calls_test::Counter>);

using namespace shared_tensor;
using namespace shared_tensor::test;
using namespace std::chrono_literals;
using object_calls_test::Counter;

namespace {

/// {"$object": {"id": "counter"}} and {"$ref": "result"} are the one.
class Things final : public codec::References {
public:
    std::shared_ptr<const codec::Value> value(const Json& name) override {
        if (name != "result") throw codec::Unresolved(json_rpc::unknown_or_expired("tensor", "e"));
        return std::make_shared<const codec::Value>(codec::Value{{{"$object", 0}}, {}, {counter.cell()}});
    }
    ObjectPointer object(const Json& handle) override {
        if (handle["id"] == "counter") return counter.cell();
        throw codec::Unresolved(json_rpc::unknown_or_expired("object", "e"));
    }
    Shared<Counter> counter = make_shared_object<Counter>();
};

/// Functions of counters; "read" and "write" wait for a word.
struct ObjectCalls {
    ~ObjectCalls() { go.set(); }

    std::variant<runtime::StartedCall, json_rpc::Error> begin(const std::string& method, const Json& params) {
        return calls.dispatcher.call({method, params, {"uid:1", {}, {}}, std::nullopt, {}, calls.port, &things});
    }
    runtime::OutcomePointer outcome(const std::string& method, const Json& params) {
        auto call = begin(method, params);
        if (auto* error = std::get_if<json_rpc::Error>(&call)) return runtime::make_outcome(*error);
        return std::get<runtime::StartedCall>(call).waiter->wait_until(patience());
    }
    Json result(const std::string& method, const Json& params) { return outcome(method, params)->value()->json; }

    Event started, go;
    std::atomic<int> running{0}, peak{0};
    Things things;
    Calls calls{functions(), workers(4)};

private:
    Registry functions() {
        Registry registry;
        registry.add(
            "get_cached", [](const Shared<const Counter>& counter) { return counter->count; }, cached(1h));
        registry.add(
            "make_cached", [](int count) { return make_shared_object<Counter>(Counter{count}); }, cached(1h));
        registry.add("read", [this](const Shared<const Counter>&) { return hold(); });
        registry.add("write", [this](const Shared<Counter>&) { return hold(); });
        return registry;
    }
    int hold() {
        const int now = ++running;
        for (int most = peak; most < now && !peak.compare_exchange_weak(most, now);) {
        }
        started.set();
        go.wait();
        return running--;
    }
};

const Json kCounter = Json::array({Json{{"$object", {{"id", "counter"}}}}});

}  // namespace

TEST_CASE("concurrent users run at once, an exclusive one alone and in its turn", "[service][objects]") {
    ObjectCalls objects;
    const auto& pool = objects.calls.dispatcher.pool();
    std::vector<runtime::StartedCall> started;
    for (const char* method : {"read", "read", "write", "read"})
        started.push_back(std::get<runtime::StartedCall>(objects.begin(method, kCounter)));
    REQUIRE(objects.started.wait(2));
    CHECK(pool.stats().queued == 2);
    CHECK(pool.stats().busy == 2);
    objects.go.set();
    for (const auto& call : started)
        CHECK(call.waiter->wait_until(patience()) != nullptr);
    CHECK(objects.peak == 2);
}

TEST_CASE("neither calls with objects nor objects are cached", "[service][objects]") {
    ObjectCalls objects;
    CHECK(objects.result("get_cached", kCounter) == 0);
    objects.things.counter->count = 5;
    CHECK(objects.result("get_cached", kCounter) == 5);
    CHECK(objects.result("get_cached", Json::array({Json{{"$ref", "result"}}})) == 5);
    for (int i = 0; i < 1000; ++i) {  // the first call may still be on its way out when the second one comes
        const auto one = objects.outcome("make_cached", {1}), other = objects.outcome("make_cached", {1});
        REQUIRE(one->value()->objects[0] != other->value()->objects[0]);
    }
    CHECK(objects.calls.dispatcher.cache().stats().entries == 0);
}

TEST_CASE("a Shared of something that may be changed may be looked at, and is never empty", "[service][objects]") {
    const auto counter = make_shared_object<Counter>(Counter{3});
    const Shared<const Counter> seen = counter;
    counter->count = 4;
    CHECK(seen->count == 4);
    CHECK(seen.cell() == counter.cell());
    CHECK_THROWS_AS(Shared<Counter>(std::shared_ptr<Counter>()), std::invalid_argument);
    const auto pair = make_shared_object<std::pair<Counter, Counter>>();
    CHECK(pair.cell()->type == "pair of counters");
}
