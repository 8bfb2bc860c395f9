// Callables of all kinds as shared functions, with parameters, defaults, results and options of all kinds.

#include <catch2/catch_test_macros.hpp>
#include <memory>
#include <span>
#include <string>

#include <shared_tensor/json.hpp>
#include <shared_tensor/registry.hpp>
#include <shared_tensor/struct.hpp>
#include <shared_tensor/tensor_ref.hpp>
#include "call.hpp"
#include "support/codec_round.hpp"

using namespace shared_tensor;
using namespace shared_tensor::test;
using namespace std::chrono_literals;

namespace functions_test {

double add(double a, double b) { return a + b; }
int noisy() noexcept { return 3; }
int overloaded(int x) { return x; }
std::string overloaded(const std::string& x) { return x + x; }
double scale(double x, double factor, std::optional<std::string> unit) { return unit ? x * factor * 1000 : x * factor; }

struct Counter {
    int total = 0;
    int add(int by) { return total += by; }
    int get() const { return total; }
    int get_quietly() const noexcept { return total; }
    void reset() noexcept { total = 0; }
    std::string greet(const std::string& name, std::string end) const { return name + end; }
};

struct MoveOnly {
    std::unique_ptr<int> value;
};

/// The result of a call of the callable.
template <class F>
Json result(F callable, std::vector<Json> arguments = {}) {
    return call(*shared(std::move(callable)), std::move(arguments)).result;
}

}  // namespace functions_test
using namespace functions_test;

template <>
struct shared_tensor::Codec<MoveOnly> {
    static MoveOnly read(const ValueReader& reader) { return {std::make_unique<int>(Codec<int>::read(reader))}; }
    static void write(ValueWriter writer, const MoveOnly& value) { Codec<int>::write(writer, *value.value); }
    static void schema(ValueWriter writer) { Codec<int>::schema(writer); }
};

TEST_CASE("functions, known at compile time or not, noexcept or overloaded, lambdas and std::function are called",
          "[share][functions]") {
    CHECK(result(detail::StaticCallable<add>{}, {1, 2.5}) == 3.5);
    CHECK(result(detail::StaticCallable<&noisy>{}) == 3);
    CHECK(result(&add, {1, 2}) == 3.0);
    CHECK(result(&noisy) == 3);
    CHECK(result(static_cast<std::string (*)(const std::string&)>(overloaded), {"a"}) == "aa");
    const int offset = 10;
    CHECK(result([offset](int x) { return x + offset; }, {1}) == 11);
    CHECK(result([](int x) noexcept { return x; }, {1}) == 1);
    CHECK(result(std::function<int(int)>([](int x) { return 2 * x; }), {4}) == 8);
}

TEST_CASE("member functions are called on their object, owned or not", "[share][functions]") {
    Counter counter;
    CHECK(result(member(&counter, &Counter::add), {5}) == 5);
    CHECK(result(member(&counter, &Counter::get)) == 5);
    CHECK(result(member(&counter, &Counter::get_quietly)) == 5);
    CHECK(result(member(&counter, &Counter::reset)) == nullptr);
    CHECK(counter.total == 0);
    CHECK(result(member(&counter, &Counter::greet), {"a", "!"}) == "a!");
    const auto owned = shared(member(std::make_shared<Counter>(), &Counter::add));
    for (int i = 1; i < 100; ++i)
        CHECK(call(*owned, {1}).result == i);
}

TEST_CASE("arguments are taken by value, reference to const, rvalue and view, and moved where they can be",
          "[share][functions]") {
    CHECK(result([](std::string a, const std::string& b, std::string&& c,
                    std::string_view d) { return std::string(a) + b + c + std::string(d); },
                 {"a", "b", "c", "d"}) == "abcd");
    CHECK(result([](std::span<const int> numbers) { return numbers[0] + numbers[2]; }, {{1, 2, 3}}) == 4);
    CHECK(result([](const std::optional<int>& x) { return x.value_or(-1); }, {nullptr}) == -1);
    CHECK(result([](MoveOnly x) { return x; }, {5}) == 5);
    CHECK(result([](MoveOnly&& x) { return std::move(x); }, {6}) == 6);
    CHECK(result([](const MoveOnly& x) { return *x.value; }, {7}) == 7);
}

TEST_CASE("a result may be nothing or a reference", "[share][functions]") {
    bool called = false;
    const auto outcome = call(*shared([&called] { called = true; }));
    CHECK(outcome.ok());
    CHECK(outcome.result.is_null());
    CHECK(called);
    static const std::string text = "kept";
    CHECK(result([]() -> const std::string& { return text; }) == "kept");
}

TEST_CASE("any JSON value and tensors, and containers of them, are parameters and results", "[share][functions]") {
    const Json literal = Json::parse(R"({"a": [1, null, {"$literal": {"$b": "c"}}]})");
    CHECK(result([](Json value) { return value; }, {literal}) == literal);
    CHECK(result([](const Json& value) { return value == Json::parse(R"({"a": [1, null, {"$b": "c"}]})"); },
                 {literal}) == true);
    CHECK(result([](std::vector<Json> values) { return values; }, {{1, "a"}}) == Json{1, "a"});
    CHECK(result([](std::optional<Json> value) { return value.has_value(); }, {nullptr}) == false);
    CHECK(result([](std::tuple<Json> value) { return value; }, {Json::array({1})}) == Json::array({1}));
    const Json x = Json::parse(R"({"$tensor": {"name": "x"}})");
    CHECK(result([](const TensorRef& tensor) { return tensor; }, {x}) == x);
    CHECK(result([](TensorRef tensor) { return tensor; }, {x}) == x);
    CHECK(result([](const std::vector<TensorRef>& tensors) { return tensors; }, {Json::array({x, x})}) ==
          Json::array({x, x}));
    CHECK(call(*shared([](const TensorRef&) {}), {5}).rejection() == "arg0: expected tensor, got number 5");
}

TEST_CASE("Context comes first and is no parameter", "[share][functions]") {
    const auto function = shared(
        [](Context& context, int x) {
            context.progress(0.5, "half");
            context.log(LogLevel::info, "here");
            return std::string(context.caller().principal) + std::to_string(x);
        },
        arg("x"));
    REQUIRE(function->parameters().size() == 1);
    CHECK(function->parameters()[0].name == "x");
    FakeContext context;
    CHECK(call(*function, {5}, context).result == "uid:75");
    REQUIRE(context.reports.size() == 1);
    CHECK(context.reports[0] == std::pair(0.5, std::string("half")));
    CHECK(context.lines == std::vector<std::string>{"here"});
    CHECK(shared([](Context& own) { return own.cancelled(); })->parameters().empty());
}

TEST_CASE("parameters have names, by default numbers, defaults and schemas, and options stand between them",
          "[share][parameters]") {
    const auto numbered = shared(&scale);
    const auto named = shared(&scale, doc("Scales."), arg("x"), execution::task, arg("factor") = 2, concurrency(3),
                              arg("unit") = "m", cached(90s, 1000), timeout(5s), idempotent(), version("2"));
    const auto described = [](const FunctionRecord& function) {
        Json all;
        for (const auto& parameter : function.parameters())
            all[std::string(parameter.name)] = parameter.required;
        return all;
    };
    CHECK(described(*numbered) == Json{{"arg0", true}, {"arg1", true}, {"arg2", false}});
    CHECK(described(*named) == Json{{"x", true}, {"factor", false}, {"unit", false}});
    const auto default_of = [&](std::size_t index) {
        return written_by([&](ValueWriter writer) { named->default_value(index, writer); });
    };
    CHECK(default_of(0).is_null());
    CHECK(default_of(1) == 2.0);
    CHECK(default_of(2) == "m");
    const auto predicate = shared([](bool, std::string) { return true; }), nothing = shared([] {});
    const auto type_of = [](const auto& write) { return written_by(write)["type"]; };
    CHECK(type_of([&](ValueWriter writer) { predicate->parameter_schema(0, writer); }) == "boolean");
    CHECK(type_of([&](ValueWriter writer) { predicate->parameter_schema(1, writer); }) == "string");
    CHECK(type_of([&](ValueWriter writer) { predicate->result_schema(writer); }) == "boolean");
    CHECK(type_of([&](ValueWriter writer) { nothing->result_schema(writer); }) == "null");

    const FunctionOptions& options = named->options();
    CHECK(options.doc == "Scales.");
    CHECK(options.runs == execution::task);
    CHECK(options.concurrency == 3);
    CHECK(options.cached);
    CHECK(options.cache_ttl == 90s);
    CHECK(options.cache_bytes == 1000);
    CHECK(options.timeout == 5s);
    CHECK(options.idempotent);
    CHECK(options.version == "2");
    const FunctionOptions& none = numbered->options();
    CHECK(none.doc.empty());
    CHECK(none.runs == execution::worker);
    CHECK(none.concurrency == 0);
    CHECK_FALSE((none.cached || none.idempotent || none.stateful));
    CHECK(none.timeout == 0ms);
}

TEST_CASE("an argument that is not given has its default, each time, also between others", "[share][parameters]") {
    const auto function = shared(&scale, arg("x"), arg("factor") = 2, arg("unit"));
    CHECK(call(*function, {10}).result == 20.0);
    CHECK(call(*function, {10, 3}).result == 30.0);
    CHECK(call(*function, {10, kNone, "k"}).result == 20'000.0);
    CHECK(call(*function, {10, kNone, nullptr}).result == 20.0);
    const auto converting =
        shared([](std::string a, std::string_view b, float c, std::optional<int> d, std::optional<int> e, std::string f,
                  std::vector<int> g) { return std::tuple(a, std::string(b), c, d, e, f, g); },
               arg("a") = "text", arg("b") = "view", arg("c") = 1, arg("d") = 5, arg("e") = std::nullopt,
               arg("f") = std::string_view("sv"), arg("g") = std::vector<int>{1, 2});
    for (int i = 0; i < 2; ++i)
        CHECK(call(*converting).result == Json::parse(R"(["text", "view", 1.0, 5, null, "sv", [1, 2]])"));
}

TEST_CASE("a missing or wrong argument is rejected by name and place before anything runs", "[share][parameters]") {
    bool ran = false;
    const auto function =
        shared([&ran](int, const std::map<std::string, std::vector<int>>&, std::array<int, 2>) { ran = true; },
               arg("n"), arg("lists"), arg("pair") = std::array{1, 2});
    const std::string no_int = ": expected integer from -2147483648 to 2147483647, got ";
    CHECK(call(*function).rejection() == "n: expected a value, got nothing");
    CHECK(call(*function, {"x", Json::object()}).rejection() == "n" + no_int + "string \"x\"");
    CHECK(call(*function, {1, Json::parse(R"({"a": [1, true]})")}).rejection() == "lists.a[1]" + no_int + "true");
    CHECK(call(*function, {1, Json::array()}).rejection() == "lists: expected object, got array of 0");
    CHECK(call(*function, {1, Json::object(), {1, "x"}}).rejection() == "pair[1]" + no_int + "string \"x\"");
    CHECK_FALSE(ran);
}
