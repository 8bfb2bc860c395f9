#include <catch2/catch_test_macros.hpp>
#include <string>

#include <shared_tensor/struct.hpp>
#include "call.hpp"

using namespace shared_tensor;
using namespace shared_tensor::test;
using namespace std::chrono_literals;

namespace {

double scale(double x, double factor, std::optional<std::string> unit) { return unit ? x * factor * 1000 : x * factor; }

Json default_of(const FunctionRecord& function, std::size_t index) {
    FakePort port;
    codec::Value value;
    codec::JsonSink sink(value, port);
    function.default_value(index, ValueWriter(sink, sink.root()));
    return codec::encode(value, port);
}

Json schema_of(const FunctionRecord& function, std::size_t index) {
    FakePort port;
    codec::Value value;
    codec::JsonSink sink(value, port);
    function.parameter_schema(index, ValueWriter(sink, sink.root()));
    return value.json;
}

}  // namespace

TEST_CASE("parameters have the names given, in order, and may have defaults", "[share][parameters]") {
    const auto function = shared(&scale, arg("x"), arg("factor") = 2, arg("unit"));
    const auto parameters = function->parameters();
    REQUIRE(parameters.size() == 3);
    CHECK(parameters[0].name == "x");
    CHECK(parameters[1].name == "factor");
    CHECK(parameters[2].name == "unit");
    CHECK(parameters[0].required);
    CHECK_FALSE(parameters[1].required);
    CHECK_FALSE(parameters[2].required);
}

TEST_CASE("parameters without names are numbered, optional ones need not be given", "[share][parameters]") {
    const auto function = shared(&scale);
    CHECK(function->parameters()[0].name == "arg0");
    CHECK(function->parameters()[2].name == "arg2");
    CHECK(function->parameters()[1].required);
    CHECK_FALSE(function->parameters()[2].required);
}

TEST_CASE("an argument that is not given has its default, also between others", "[share][parameters]") {
    const auto function = shared(&scale, arg("x"), arg("factor") = 2, arg("unit"));
    CHECK(call(*function, {10}).result == 20.0);
    CHECK(call(*function, {10, 3}).result == 30.0);
    CHECK(call(*function, {10, kNone, "k"}).result == 20'000.0);
    CHECK(call(*function, {10, kNone, nullptr}).result == 20.0);
}

TEST_CASE("a default is used again and again", "[share][parameters]") {
    const auto function = shared([](std::vector<int> list) { return list; }, arg("list") = std::vector<int>{1, 2});
    CHECK(call(*function).result == Json{1, 2});
    CHECK(call(*function).result == Json{1, 2});
}

TEST_CASE("defaults convert to the parameter's type", "[share][parameters]") {
    const auto function =
        shared([](std::string a, std::string_view b, float c, std::optional<int> d, std::optional<int> e,
                  std::string f) { return std::tuple(a, std::string(b), c, d, e, f); },
               arg("a") = "text", arg("b") = "view", arg("c") = 1, arg("d") = 5, arg("e") = std::nullopt,
               arg("f") = std::string_view("sv"));
    CHECK(call(*function).result == Json::parse(R"(["text", "view", 1.0, 5, null, "sv"])"));
}

TEST_CASE("default values can be shown", "[share][parameters]") {
    const auto function = shared(&scale, arg("x"), arg("factor") = 2, arg("unit") = "m");
    CHECK(default_of(*function, 0).is_null());
    CHECK(default_of(*function, 1) == 2.0);
    CHECK(default_of(*function, 2) == "m");
}

TEST_CASE("a required argument that is missing is rejected by name", "[share][parameters]") {
    const auto function = shared(&scale, arg("x"), arg("factor") = 2, arg("unit"));
    CHECK(call(*function).rejection() == "x: expected a value: the parameter is required, got nothing");
}

TEST_CASE("a wrong argument is rejected by name and place before anything runs", "[share][parameters]") {
    bool ran = false;
    const auto function =
        shared([&ran](int, const std::map<std::string, std::vector<int>>&) { ran = true; }, arg("n"), arg("lists"));
    CHECK(call(*function, {"x", Json::object()}).rejection() ==
          "n: expected integer from -2147483648 to 2147483647, got string \"x\"");
    CHECK(call(*function, {1, Json::parse(R"({"a": [1, true]})")}).rejection() ==
          "lists.a[1]: expected integer from -2147483648 to 2147483647, got true");
    CHECK(call(*function, {1, Json::array()}).rejection() == "lists: expected object, got array of 0");
    CHECK_FALSE(ran);
}

TEST_CASE("an array parameter's elements are named with it", "[share][parameters]") {
    const auto function = shared([](std::array<int, 2>) {}, arg("pair"));
    CHECK(call(*function, {{1, "x"}}).rejection().starts_with("pair[1]: expected integer"));
}

TEST_CASE("each parameter and the result have a schema", "[share][parameters]") {
    const auto function = shared([](bool, std::string) { return true; });
    CHECK(schema_of(*function, 0) == Json{{"type", "boolean"}});
    CHECK(schema_of(*function, 1) == Json{{"type", "string"}});
    const auto result = [](const FunctionRecord& of) {
        FakePort port;
        codec::Value value;
        codec::JsonSink sink(value, port);
        of.result_schema(ValueWriter(sink, sink.root()));
        return value.json;
    };
    CHECK(result(*function) == Json{{"type", "boolean"}});
    CHECK(result(*shared([] {})) == Json{{"type", "null"}});
}

TEST_CASE("options may stand between the names, in any order", "[share][parameters]") {
    const auto function = shared(&scale, doc("Scales."), arg("x"), execution::task, arg("factor") = 2, concurrency(3),
                                 arg("unit"), cached(90s, 1000), timeout(5s), idempotent(), version("2"));
    CHECK(function->parameters()[2].name == "unit");
    const FunctionOptions& options = function->options();
    CHECK(options.doc == "Scales.");
    CHECK(options.runs == execution::task);
    CHECK(options.concurrency == 3);
    CHECK(options.cached);
    CHECK(options.cache_ttl == 90s);
    CHECK(options.cache_bytes == 1000);
    CHECK(options.timeout == 5s);
    CHECK(options.idempotent);
    CHECK(options.version == "2");
}

TEST_CASE("without options a function runs on a worker, as often at once as there are workers, uncached",
          "[share][parameters]") {
    const auto function = shared(&scale);
    const FunctionOptions& options = function->options();
    CHECK(options.doc.empty());
    CHECK(options.runs == execution::worker);
    CHECK(options.concurrency == 0);
    CHECK_FALSE(options.cached);
    CHECK(options.timeout == 0ms);
    CHECK_FALSE(options.idempotent);
    CHECK_FALSE(options.stateful);
}
