// Calls of batched functions: which are joined, and what each gets.

#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <map>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include "base/concurrency/guarded.hpp"
#include "support/daemon.hpp"
#include "support/tensors.hpp"
#include "unit/runtime/service/call_helpers.hpp"

using namespace shared_tensor;
using namespace shared_tensor::test;
using namespace std::chrono_literals;
using json_rpc::Error;

namespace {

using Numbers = std::vector<float>;

Json lists(const Numbers& numbers, const std::vector<std::size_t>& shape) {
    if (shape.empty()) return numbers.at(0);
    if (shape.size() == 1) return numbers;
    Json rows = Json::array();
    for (std::size_t i = 0; i < shape[0]; ++i) {
        const auto row = numbers.begin() + static_cast<std::ptrdiff_t>(i * shape[1]);
        rows.push_back(Numbers(row, row + static_cast<std::ptrdiff_t>(shape[1])));
    }
    return rows;
}
Json tensor_json(const Numbers& numbers, const std::vector<std::size_t>& shape) {
    return {{"$tensor", {{"dtype", "float32"}, {"shape", shape}, {"data", lists(numbers, shape)}}}};
}
template <class... T>
Json args(const T&... arguments) {
    return Json::array({arguments...});
}
/// A tensor of one column.
Json column(const Numbers& numbers) { return tensor_json(numbers, {numbers.size(), 1}); }

Numbers numbers_in(const TensorRef& tensor) {
    const auto* first = reinterpret_cast<const float*>(tensor.data());
    return {first, first + tensor.elements()};
}

TensorRef times(const TensorRef& x, float factor) {
    Numbers numbers = numbers_in(x);
    for (float& number : numbers)
        number *= factor;
    return tensor_of(numbers, {x.shape().begin(), x.shape().end()});
}

/// Batched functions that note the rows of their runs, and one that keeps the only worker busy.
struct Functions {
    Event started, go, waits, finish, ended;
    Guarded<std::vector<std::int64_t>> runs;
    Registry registry;

    Functions() {
        const auto note = [this](const TensorRef& x) { runs.with([&](auto& rows) { rows.push_back(x.shape()[0]); }); };
        registry.add("hold", [this] {
            started.set();
            go.wait();
        });
        const auto scale = [note](const TensorRef& x, float factor) {
            note(x);
            return times(x, factor);
        };
        registry.add("scale", scale, arg("x"), arg("factor") = 2.0F, batched(8));
        registry.add("cached_scale", scale, arg("x"), arg("factor") = 2.0F, batched(8), cached(10s));
        registry.add("patient", scale, arg("x"), arg("factor") = 2.0F, batched(4, 10s));
        registry.add("brief_wait", scale, arg("x"), arg("factor") = 2.0F, batched(4, 1ms));
        registry.add(
            "roots",
            [note](const TensorRef& x) {
                note(x);
                for (const float number : numbers_in(x)) {
                    if (number < 0) throw std::domain_error("below zero");
                }
                return x;
            },
            arg("x"), batched(8));
        registry.add(
            "labels",
            [note](const TensorRef& x) {
                note(x);
                std::vector<std::string> labels;
                for (const float number : numbers_in(x))
                    labels.push_back(number < 0 ? "minus" : "plus");
                return std::map<std::string, std::tuple<TensorRef, std::vector<std::string>>>{{"all", {x, labels}}};
            },
            arg("x"), batched(8));
        registry.add(
            "sum",
            [note](const TensorRef& x) {
                note(x);
                double sum = 0;
                for (const float number : numbers_in(x))
                    sum += number;
                return sum;
            },
            arg("x"), batched(8));
        registry.add(
            "first",
            [note](const TensorRef& x) {
                note(x);
                return x.slice(0, 1);
            },
            arg("x"), batched(8));
        registry.add(
            "nothing", [note](const TensorRef& x) { note(x); }, arg("x"), batched(8));
        registry.add(
            "pair",
            [note](const TensorRef& x, const TensorRef&) {
                note(x);
                return x;
            },
            arg("x"), arg("y"), batched(8));
        registry.add(
            "list",
            [note](const std::vector<TensorRef>& x) {
                note(x.at(0));
                return x.at(0);
            },
            arg("x"), batched(8));
        registry.add(
            "wait",
            [this, note](Context& context, const TensorRef& x) {
                note(x);
                context.progress(0.5, "half");
                waits.set();
                while (finish.count() == 0 && context.sleep_for(1ms)) {
                }
                if (context.cancelled()) ended.set();
                return x;
            },
            arg("x"), batched(8));
    }
    void end() {
        go.set();
        finish.set();
    }

    std::vector<std::int64_t> rows() {
        return runs.with([](const auto& all) { return all; });
    }
};

/// A server with one worker.
struct Server {
    explicit Server(Functions& all, std::size_t queue = 1024)
        : functions(all), dispatcher(all.registry, workers(1, queue)) {}
    ~Server() { functions.end(); }

    std::variant<runtime::StartedCall, Error> start(const std::string& method, const Json& params,
                                                    const std::string& key = {},
                                                    const std::string& principal = "uid:1") {
        tensor::TensorTransfer port;
        return dispatcher.call({method, params, {principal, "", {}}, 1min, key, port});
    }
    runtime::StartedCall started(const std::string& method, const Json& params, const std::string& key = {},
                                 const std::string& principal = "uid:1") {
        auto call = start(method, params, key, principal);
        if (const auto* error = std::get_if<Error>(&call)) FAIL(error->message << error->data.dump());
        return std::move(std::get<runtime::StartedCall>(call));
    }
    /// Keeps the worker busy, so that calls wait together, until go is set.
    runtime::StartedCall hold() {
        auto call = started("hold", nullptr);
        REQUIRE(functions.started.wait());
        return call;
    }
    static runtime::OutcomePointer outcome(const runtime::StartedCall& call) {
        return call.waiter->wait_until(patience());
    }
    static Numbers result(const runtime::StartedCall& call) {
        const auto got = outcome(call);
        REQUIRE(got != nullptr);
        if (got->failed()) FAIL(got->error()->data.dump());
        return numbers_in(got->value()->tensors.at(0)->tensor());
    }

    Functions& functions;
    runtime::Dispatcher dispatcher;
};

}  // namespace

TEST_CASE("calls that wait together run as one, and each caller gets its rows", "[service][batches]") {
    Functions functions;
    Server server(functions);
    const auto held = server.hold();
    const auto one = server.started("scale", {{"x", column({1})}});
    const auto two = server.started("scale", {{"x", column({2, 3})}, {"factor", 2.0}});
    const auto none = server.started("scale", args(column({})));
    const auto three = server.started("scale", args(column({4, 5, 6}), 2));
    CHECK(server.dispatcher.pool().stats().queued == 4);
    functions.go.set();
    CHECK(Server::result(one) == Numbers{2});
    CHECK(Server::result(two) == Numbers{4, 6});
    CHECK(Server::result(none).empty());
    CHECK(Server::result(three) == Numbers{8, 10, 12});
    // The default of a parameter is not known to be equal to a given argument.
    CHECK(functions.rows().size() == 3);
    CHECK(server.dispatcher.pool().stats().queued == 0);
    const runtime::RunTime& runs = *server.dispatcher.find("scale")->run_time;
    CHECK(runs.latencies().count == 4);
    CHECK(runs.batches == 1);
    CHECK(runs.batched_calls == 2);
}

TEST_CASE("only calls that differ in the number of rows alone are joined", "[service][batches]") {
    Functions functions;
    Server server(functions);
    const auto held = server.hold();
    std::vector<runtime::StartedCall> calls;
    calls.push_back(server.started("scale", args(column({1}), 2)));
    calls.push_back(server.started("scale", args(column({1}), 3)));
    calls.push_back(server.started("scale", args(tensor_json({1, 2}, {1, 2}), 2)));
    calls.push_back(server.started("scale", args(tensor_json({1}, {1}), 2)));
    calls.push_back(server.started("scale", args(column({1}), 2), {}, "uid:2"));
    calls.push_back(server.started("nothing", args(column({1}))));
    calls.push_back(
        server.started("nothing", args(Json{{"$tensor", {{"dtype", "int32"}, {"shape", {1, 1}}, {"data", {{1}}}}}})));
    functions.go.set();
    for (const auto& call : calls)
        CHECK_FALSE(Server::outcome(call)->failed());
    CHECK(functions.rows() == std::vector<std::int64_t>(7, 1));
}

TEST_CASE("a batch has at most the rows that the function allows, and a larger call runs alone", "[service][batches]") {
    Functions functions;
    Server server(functions);
    const auto held = server.hold();
    const auto five = server.started("scale", args(column(Numbers(5, 1))));
    const auto four = server.started("scale", args(column(Numbers(4, 2))));
    const auto nine = server.started("scale", args(column(Numbers(9, 3))));
    const auto three = server.started("scale", args(column(Numbers(3, 4))));
    functions.go.set();
    CHECK(Server::result(five) == Numbers(5, 2));
    CHECK(Server::result(four) == Numbers(4, 4));
    CHECK(Server::result(nine) == Numbers(9, 6));
    CHECK(Server::result(three) == Numbers(3, 8));
    CHECK(functions.rows() == std::vector<std::int64_t>{8, 4, 9});
}

TEST_CASE("calls whose rows together are beyond 64 bits run alone", "[service][batches]") {
    Functions functions;
    Server server(functions);
    const auto held = server.hold();
    constexpr std::int64_t many = std::int64_t{1} << 62;
    const Json argument{{"$tensor", {{"dtype", "uint8"}, {"shape", {many, 0}}, {"base64", ""}}}};
    const auto first = server.started("nothing", args(argument)), second = server.started("nothing", args(argument));
    functions.go.set();
    CHECK_FALSE(Server::outcome(first)->failed());
    CHECK_FALSE(Server::outcome(second)->failed());
    CHECK(functions.rows() == std::vector<std::int64_t>(2, many));
}

TEST_CASE("the error of one call stays its own", "[service][batches]") {
    Functions functions;
    Server server(functions);
    const auto held = server.hold();
    const auto good = server.started("roots", args(column({1, 2})));
    const auto bad = server.started("roots", args(column({-1})));
    const auto other = server.started("roots", args(column({3})));
    functions.go.set();
    CHECK(Server::result(good) == Numbers{1, 2});
    CHECK(Server::result(other) == Numbers{3});
    const auto failed = Server::outcome(bad);
    CHECK(code_of(failed) == -32000);
    CHECK(failed->error()->data["message"] == "below zero");
    CHECK(functions.rows() == std::vector<std::int64_t>{4, 2, 1, 1});
}

TEST_CASE("results are split inside of containers, and lists by their elements", "[service][batches]") {
    Functions functions;
    Server server(functions);
    const auto held = server.hold();
    const auto one = server.started("labels", args(column({1})));
    const auto two = server.started("labels", args(column({-2, 3})));
    const auto empty = server.started("nothing", args(column({1}))),
               void_too = server.started("nothing", args(column({2})));
    functions.go.set();
    CHECK(Server::result(one) == Numbers{1});
    CHECK(Server::outcome(one)->value()->json == Json::parse(R"({"all": [{"$tensor": 0}, ["plus"]]})"));
    CHECK(Server::result(two) == Numbers{-2, 3});
    CHECK(Server::outcome(two)->value()->json == Json::parse(R"({"all": [{"$tensor": 0}, ["minus", "plus"]]})"));
    CHECK(Server::outcome(empty)->value()->json.is_null());
    CHECK(Server::outcome(void_too)->value()->json.is_null());
    CHECK(functions.rows() == std::vector<std::int64_t>{3, 2});
}

TEST_CASE("a result without a row for each row of the arguments is the function's failure, joined or alone",
          "[service][batches]") {
    Functions functions;
    Server server(functions);
    const bool joined = GENERATE(false, true);
    const std::string function = GENERATE("sum", "first");
    const auto held = server.hold();
    const auto one = server.started(function, args(column({1, 2})));
    const auto other = joined ? server.started(function, args(column({3, 4}))) : runtime::StartedCall{};
    functions.go.set();
    const auto outcome = Server::outcome(one);
    REQUIRE(code_of(outcome) == -32000);
    CHECK(outcome->error()->data["message"].get<std::string>().find(
              "expected one row for each of the 2 rows of the arguments") != std::string::npos);
}

TEST_CASE("objects in the lists of a result are no rows", "[service][batches]") {
    const auto with = [](const char* json) { return codec::Value{Json::parse(json), {}, {}}; };
    CHECK_NOTHROW(runtime::check_rows(with("[[1], [2]]"), 2));
    for (const char* json : {R"([{"$object": 0}, {"$object": 1}])", R"({"a": [[{"$object": 0}], []]})"}) {
        CAPTURE(json);
        CHECK_THROWS_AS(runtime::check_rows(with(json), 2), InvalidValue);
    }
}

TEST_CASE("the tensors of a call have rows, and as many of them", "[service][batches]") {
    Functions functions;
    Server server(functions);
    const auto rejected = [&](const std::string& function, const Json& params) {
        return std::get<Error>(server.start(function, params));
    };
    const Error uneven = rejected("pair", args(column({1}), column({1, 2})));
    CHECK(uneven.code == -32602);
    CHECK(uneven.data["parameter"] == "y");
    CHECK(uneven.data["expected"] == "1 rows (dimension 0), as the other tensors of the call have");
    CHECK(uneven.data["got"] == "2");
    CHECK(rejected("scale", args(tensor_json({1}, {}))).data["got"] == "one without");
    // Tensors inside of other arguments have no such rule, and are not joined.
    const auto held = server.hold();
    const auto one = server.started("list", args(args(column({1})))),
               other = server.started("list", args(args(column({2}))));
    functions.go.set();
    CHECK(Server::result(one) == Numbers{1});
    CHECK(Server::result(other) == Numbers{2});
    CHECK(functions.rows() == std::vector<std::int64_t>{1, 1});
}

TEST_CASE("nested arrays are a tensor where a parameter is one, in a batch too", "[service][batches]") {
    Functions functions;
    Server server(functions);
    const auto held = server.hold();
    const auto one = server.started("scale", args(Json::parse("[[1.5], [2]]")));
    const auto other = server.started("scale", args(column({3})));
    const auto ragged = std::get<Error>(server.start("scale", args(Json::parse("[[1], [2, 3]]"))));
    CHECK(ragged.data["parameter"] == "x[1]");
    CHECK(ragged.data["expected"] == "array of 1");
    CHECK(ragged.data["got"] == "array of 2");
    CHECK(std::get<Error>(server.start("scale", args(Json::parse("[\"a\"]")))).data["parameter"] == "x[0]");
    CHECK(std::get<Error>(server.start("scale", args(3))).data["expected"] == "tensor");
    functions.go.set();
    CHECK(Server::result(one) == Numbers{3, 4});
    CHECK(Server::result(other) == Numbers{6});
    CHECK(functions.rows() == std::vector<std::int64_t>{3});
}

TEST_CASE("a cancelled call takes no part, and leaves the queue", "[service][batches]") {
    Functions functions;
    Server server(functions);
    const auto held = server.hold();
    auto gone = server.started("scale", args(column({1})));
    const auto stays = server.started("scale", args(column({2, 3})));
    gone.waiter.reset();
    CHECK(server.dispatcher.pool().stats().queued == 1);
    functions.go.set();
    CHECK(Server::result(stays) == Numbers{4, 6});
    CHECK(functions.rows() == std::vector<std::int64_t>{2});
}

TEST_CASE("a joined run goes on for its other callers, and is cancelled when the last one is gone",
          "[service][batches]") {
    Functions functions;
    Server server(functions);
    const bool all_leave = GENERATE(true, false);
    const auto held = server.hold();
    auto one = server.started("wait", args(column({1}))), other = server.started("wait", args(column({2})));
    std::atomic<double> progress{0};
    other.waiter->execution()->observe({{}, [&](double fraction, std::string_view) { progress = fraction; }, {}});
    functions.go.set();
    REQUIRE(functions.waits.wait());
    one.waiter.reset();
    if (all_leave) {
        other.waiter.reset();
        CHECK(functions.ended.wait());
    } else {
        functions.finish.set();
        CHECK(Server::result(other) == Numbers{2});
        CHECK(functions.ended.count() == 0);
    }
    CHECK(progress == 0.5);
    CHECK(functions.rows() == std::vector<std::int64_t>{2});
}

TEST_CASE("a call waits for others until the batch is full or its time is over", "[service][batches]") {
    Functions functions;
    Server server(functions);
    const auto one = server.started("patient", args(column({1})));
    const auto is_taken = [&] {
        const auto pool = server.dispatcher.pool().stats();
        return pool.busy == 1 && pool.queued == 0;
    };
    REQUIRE(eventually(is_taken));  // its worker waits
    const auto two = server.started("patient", args(column({2})));
    const auto rest = server.started("patient", args(column({3, 4})));
    CHECK(one.waiter->wait_until(real_clock().now() + 9s) != nullptr);  // it is full, so it does not wait for 10 s
    CHECK(Server::result(one) == Numbers{2});
    CHECK(Server::result(two) == Numbers{4});
    CHECK(Server::result(rest) == Numbers{6, 8});
    CHECK(functions.rows() == std::vector<std::int64_t>{4});
    CHECK(Server::result(server.started("brief_wait", args(column({5})))) == Numbers{10});
}

TEST_CASE("a kept result has memory of its own", "[service][batches]") {
    Functions functions;
    Server server(functions);
    const bool kept = GENERATE(true, false);
    const auto held = server.hold();
    const auto one = server.started("scale", args(column({1})), kept ? "key 1" : "");
    const auto other = server.started("scale", args(column({2})), kept ? "key 2" : "");
    functions.go.set();
    const auto owner = [](const runtime::StartedCall& call) {
        return Server::outcome(call)->value()->tensors.at(0)->tensor().owner();
    };
    CHECK((owner(one) == owner(other)) != kept);
    CHECK(functions.rows() == std::vector<std::int64_t>{2});
}

TEST_CASE("cached results and equal calls in flight are found for each call of a batch", "[service][batches]") {
    Functions functions;
    Server server(functions);
    const auto held = server.hold();
    const auto one = server.started("cached_scale", args(column({1})));
    const auto equal = server.started("cached_scale", args(column({1})));
    const auto other = server.started("cached_scale", args(column({2})));
    functions.go.set();
    CHECK(Server::result(one) == Numbers{2});
    CHECK(Server::result(equal) == Numbers{2});
    CHECK(Server::result(other) == Numbers{4});
    CHECK(Server::result(server.started("cached_scale", args(column({2})))) == Numbers{4});
    CHECK(functions.rows() == std::vector<std::int64_t>{2});
}

TEST_CASE("a call that finds the queue full is rejected, and does not run", "[service][batches]") {
    Functions functions;
    Server server(functions, 2);
    const auto held = server.hold();
    const auto one = server.started("scale", args(column({1}))), two = server.started("scale", args(column({2})));
    CHECK(std::get<Error>(server.start("scale", args(column({3})))).code == -32001);
    functions.go.set();
    CHECK(Server::result(one) == Numbers{2});
    CHECK(functions.rows() == std::vector<std::int64_t>{2});
}

TEST_CASE("a function that cannot be batched is rejected when it is registered", "[service][batches]") {
    Registry registry;
    const auto rejected = [&](auto... options) -> std::string {
        try {
            registry.add(
                "f", [](const TensorRef& x) { return x; }, arg("x"), options...);
        } catch (const std::invalid_argument& error) {
            return error.what();
        }
        return "accepted";
    };
    CHECK(rejected(batched(8), execution::inline_).find("runs inline") != std::string::npos);
    CHECK(rejected(batched(8, 11s)).find("at most 10 s") != std::string::npos);
    CHECK(rejected(batched(8, -1us)).find("at most 10 s") != std::string::npos);
    CHECK_THROWS_AS(registry.add(
                        "g", [](Reader<int>, const TensorRef& x) { return x; }, batched(8)),
                    std::invalid_argument);
    CHECK(rejected(batched(8, 10s)) == "accepted");
}
