#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <stdexcept>
#include <string>

#include <shared_tensor/registry.hpp>
#include "call.hpp"

using namespace shared_tensor;
using namespace shared_tensor::test;
using Catch::Matchers::ContainsSubstring;

namespace {

template <class Act>
std::string rejected(Act act) {
    try {
        act();
    } catch (const std::invalid_argument& error) {
        return error.what();
    }
    return "taken";
}

std::string rejected_name(const std::string& name) {
    return rejected([&] { Registry().add(name, [] {}); });
}

}  // namespace

TEST_CASE("a registry finds what was added, by name, lists it in order, and can be moved", "[share][registry]") {
    Registry registry;
    registry.add(
        "b", [](int x) { return x; }, arg("x"), doc("Same."));
    registry.add(std::string("a.c"), [] { return 1; });
    CHECK(registry.size() == 2);
    const FunctionRecord* const function = registry.find("b");
    REQUIRE(function != nullptr);
    CHECK(function->options().doc == "Same.");
    CHECK(registry.find("c") == nullptr);
    CHECK(registry.functions()[0]->name() == "a.c");
    CHECK(registry.functions()[1]->name() == "b");
    const Registry moved = std::move(registry);
    CHECK(moved.find("b") == function);
    CHECK(call(*function, {3}).result == 3);
}

TEST_CASE("a name that is taken is rejected, and both places are named", "[share][registry]") {
    Registry registry;
    registry.add("same", [] {});
    const auto line = __LINE__ - 1;
    const auto message = rejected([&] { registry.add("same", [] { return 1; }); });
    const auto other = __LINE__ - 1;
    CHECK_THAT(message, ContainsSubstring("\"same\""));
    CHECK_THAT(message, ContainsSubstring("registry_test.cpp:" + std::to_string(line) + " and "));
    CHECK_THAT(message, ContainsSubstring("registry_test.cpp:" + std::to_string(other)));
    CHECK(registry.size() == 1);
}

TEST_CASE("of two plugins that share one name both are named", "[share][registry]") {
    const auto function = [] { return detail::make_function_record("same", "same.cpp:7", [] {}); };
    const std::unique_ptr<FunctionRecord> first = function(), second = function();
    const detail::ShareRecord one{first.get(), nullptr}, other{second.get(), nullptr};
    Registry registry;
    registry.add_records(&one, "/plugins/one.so");
    const auto message = rejected([&] { registry.add_records(&other, "/plugins/other.so"); });
    CHECK_THAT(message, ContainsSubstring("same.cpp:7 (/plugins/one.so) and same.cpp:7 (/plugins/other.so)"));
    CHECK_THAT(message, ContainsSubstring("SHARE_AS"));
}

TEST_CASE("the daemon's own prefixes are rejected, and malformed names with the way out", "[share][registry]") {
    for (const char* prefix :
         {"rpc.", "server.", "task.", "lease.", "session.", "tensor.", "object.", "cache.", "model."})
        CHECK_THAT(rejected_name(std::string(prefix) + "mine"), ContainsSubstring(prefix));
    for (const std::string& name : {std::string(), std::string("a b"), std::string("a::b"), std::string("a\n"),
                                    std::string("\xc3\xa4"), std::string(201, 'a')})
        CHECK_THAT(rejected_name(name), ContainsSubstring("SHARE_AS"));
    CHECK(rejected_name(std::string("a\0b", 3)) != "taken");
    for (const std::string& name : {std::string("tensors.mine"), std::string("task"), std::string("my.task.x"),
                                    std::string(200, 'a'), std::string("A-z_0.9")})
        CHECK(rejected_name(name) == "taken");
}

TEST_CASE("two parameters of one name are rejected", "[share][registry]") {
    const auto message = rejected([] {
        Registry().add(
            "twins", [](int, int) {}, arg("x"), arg("x"));
    });
    CHECK_THAT(message, ContainsSubstring("twins"));
    CHECK_THAT(message, ContainsSubstring("two parameters are called \"x\""));
}

TEST_CASE("what cannot be told of a function as text is rejected, with the parameter", "[share][registry]") {
    const std::string latin = "caf\xe9";
    const auto identity = [](const std::string& text) { return text; };
    const auto message = rejected([&] { Registry().add("f", identity, arg("text") = latin); });
    CHECK_THAT(message, ContainsSubstring("\"f\"") && ContainsSubstring("\"text\"") && ContainsSubstring("UTF-8"));
    CHECK_THAT(rejected([&] { Registry().add("f", identity, arg("text"), doc(latin)); }), ContainsSubstring("UTF-8"));
    CHECK_THAT(rejected([&] { Registry().add("f", identity, arg(latin)); }), ContainsSubstring("UTF-8"));
}
