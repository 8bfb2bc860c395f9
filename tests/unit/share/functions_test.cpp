// Callables of all kinds as shared functions, with parameters and results of all kinds.

#include <catch2/catch_test_macros.hpp>
#include <memory>
#include <span>
#include <string>

#include <shared_tensor/json.hpp>
#include <shared_tensor/registry.hpp>
#include <shared_tensor/struct.hpp>
#include <shared_tensor/tensor_ref.hpp>
#include "call.hpp"

using namespace shared_tensor;
using namespace shared_tensor::test;

namespace functions_test {

double add(double a, double b) { return a + b; }
int noisy() noexcept { return 3; }
int overloaded(int x) { return x; }
std::string overloaded(const std::string& x) { return x + x; }

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

}  // namespace functions_test
using namespace functions_test;

template <>
struct shared_tensor::Codec<MoveOnly> {
    static MoveOnly read(const ValueReader& reader) { return {std::make_unique<int>(Codec<int>::read(reader))}; }
    static void write(ValueWriter writer, const MoveOnly& value) { Codec<int>::write(writer, *value.value); }
    static void schema(ValueWriter writer) { Codec<int>::schema(writer); }
};

TEST_CASE("a function known at compile time is called", "[share][functions]") {
    CHECK(call(*shared(detail::StaticCallable<add>{}), {1, 2.5}).result == 3.5);
    CHECK(call(*shared(detail::StaticCallable<&noisy>{})).result == 3);
}

TEST_CASE("function pointers, noexcept ones too, and one of several overloads are called", "[share][functions]") {
    CHECK(call(*shared(&add), {1, 2}).result == 3.0);
    CHECK(call(*shared(&noisy)).result == 3);
    CHECK(call(*shared(static_cast<std::string (*)(const std::string&)>(overloaded)), {"a"}).result == "aa");
}

TEST_CASE("lambdas, also with captures and noexcept, and std::function are called", "[share][functions]") {
    const int offset = 10;
    CHECK(call(*shared([offset](int x) { return x + offset; }), {1}).result == 11);
    CHECK(call(*shared([](int x) noexcept { return x; }), {1}).result == 1);
    CHECK(call(*shared(std::function<int(int)>([](int x) { return 2 * x; })), {4}).result == 8);
}

TEST_CASE("member functions are called on their object, owned or not", "[share][functions]") {
    Counter counter;
    CHECK(call(*shared(member(&counter, &Counter::add)), {5}).result == 5);
    CHECK(call(*shared(member(&counter, &Counter::get))).result == 5);
    CHECK(call(*shared(member(&counter, &Counter::get_quietly))).result == 5);
    CHECK(call(*shared(member(&counter, &Counter::reset))).result == nullptr);
    CHECK(counter.total == 0);
    CHECK(call(*shared(member(&counter, &Counter::greet)), {"a", "!"}).result == "a!");
    const auto owned = shared(member(std::make_shared<Counter>(), &Counter::add));
    call(*owned, {1});
    CHECK(call(*owned, {1}).result == 2);
}

TEST_CASE("arguments are taken by value, reference to const, rvalue and view", "[share][functions]") {
    CHECK(call(*shared([](std::string a, const std::string& b, std::string&& c, std::string_view d) {
              return std::string(a) + b + c + std::string(d);
          }),
               {"a", "b", "c", "d"})
              .result == "abcd");
    CHECK(call(*shared([](std::span<const int> numbers) {
              int sum = 0;
              for (const int number : numbers)
                  sum += number;
              return sum;
          }),
               {{1, 2, 3}})
              .result == 6);
    CHECK(call(*shared([](const std::optional<int>& x) { return x.value_or(-1); }), {nullptr}).result == -1);
}

TEST_CASE("an argument taken by value is moved, so it need not be copyable", "[share][functions]") {
    CHECK(call(*shared([](MoveOnly x) { return x; }), {5}).result == 5);
    CHECK(call(*shared([](MoveOnly&& x) { return std::move(x); }), {6}).result == 6);
    CHECK(call(*shared([](const MoveOnly& x) { return *x.value; }), {7}).result == 7);
}

TEST_CASE("a function without a result answers null", "[share][functions]") {
    bool called = false;
    const auto outcome = call(*shared([&called] { called = true; }));
    CHECK(outcome.ok());
    CHECK(outcome.result.is_null());
    CHECK(called);
}

TEST_CASE("a result may be a reference", "[share][functions]") {
    static const std::string text = "kept";
    CHECK(call(*shared([]() -> const std::string& { return text; })).result == "kept");
}

TEST_CASE("any JSON value, and containers of them, are parameters and results", "[share][functions]") {
    const Json json = Json::parse(R"({"a": [1, null, {"$b": "c"}]})");
    const Json stream = Json::parse(R"({"a": [1, null, {"$literal": {"$b": "c"}}]})");
    CHECK(call(*shared([](Json value) { return value; }), {stream}).result == stream);
    CHECK(call(*shared([](const Json& value) { return value == Json::parse(R"({"a": [1, null, {"$b": "c"}]})"); }),
               {stream})
              .result == true);
    CHECK(call(*shared([](std::vector<Json> values) { return values; }), {{1, "a"}}).result == Json{1, "a"});
    CHECK(call(*shared([](std::optional<Json> value) { return value.has_value(); }), {nullptr}).result == false);
    CHECK(call(*shared([](std::tuple<Json> value) { return value; }), {Json::array({json["a"][0]})}).result ==
          Json::array({1}));
}

TEST_CASE("tensors are taken and given by reference count", "[share][functions]") {
    const Json x = Json::parse(R"({"$tensor": {"name": "x"}})");
    CHECK(call(*shared([](const TensorRef& tensor) { return tensor; }), {x}).result == x);
    CHECK(call(*shared([](TensorRef tensor) { return tensor; }), {x}).result == x);
    CHECK(call(*shared([](const std::vector<TensorRef>& tensors) { return tensors; }), {Json::array({x, x})}).result ==
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
}

TEST_CASE("a function that only takes a Context has no parameters", "[share][functions]") {
    const auto function = shared([](Context& context) { return context.cancelled(); });
    CHECK(function->parameters().empty());
    CHECK(call(*function).result == false);
}

TEST_CASE("a function of plain numbers is called many times with its own arguments each time", "[share][functions]") {
    const auto function = shared([](int x) { return x; });
    for (int i = 0; i < 100; ++i)
        CHECK(call(*function, {i}).result == i);
}
