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
    return rejected([&] {
        Registry registry;
        registry.add(name, [] {});
    });
}

}  // namespace

TEST_CASE("a registry finds what was added, by name, and lists it in order", "[share][registry]") {
    Registry registry;
    registry.add(
        "b", [](int x) { return x; }, arg("x"), doc("Same."));
    registry.add(std::string("a.c"), [] { return 1; });
    CHECK(registry.size() == 2);
    REQUIRE(registry.find("b") != nullptr);
    CHECK(call(*registry.find("b"), {3}).result == 3);
    CHECK(registry.find("b")->options().doc == "Same.");
    CHECK(registry.find("c") == nullptr);
    CHECK(registry.functions()[0]->name() == "a.c");
    CHECK(registry.functions()[1]->name() == "b");
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

TEST_CASE("the daemon's own prefixes are rejected", "[share][registry]") {
    for (const char* prefix :
         {"rpc.", "server.", "task.", "lease.", "session.", "tensor.", "object.", "cache.", "model."}) {
        INFO(prefix);
        CHECK_THAT(rejected_name(std::string(prefix) + "mine"), ContainsSubstring(prefix));
    }
    CHECK(rejected_name("tensors.mine") == "taken");
    CHECK(rejected_name("task") == "taken");
    CHECK(rejected_name("my.task.x") == "taken");
}

TEST_CASE("a malformed name is rejected with the way out", "[share][registry]") {
    for (const std::string& name : {std::string(), std::string("a b"), std::string("a::b"), std::string("a\n"),
                                    std::string("\xc3\xa4"), std::string(201, 'a')}) {
        CHECK_THAT(rejected_name(name), ContainsSubstring("SHARE_AS"));
    }
    CHECK(rejected_name(std::string("a\0b", 3)) != "taken");
    CHECK(rejected_name(std::string(200, 'a')) == "taken");
    CHECK(rejected_name("A-z_0.9") == "taken");
}

TEST_CASE("two parameters of one name are rejected", "[share][registry]") {
    const auto message = rejected([] {
        Registry registry;
        registry.add(
            "twins", [](int, int) {}, arg("x"), arg("x"));
    });
    CHECK_THAT(message, ContainsSubstring("twins"));
    CHECK_THAT(message, ContainsSubstring("two parameters are called \"x\""));
}

TEST_CASE("a registry can be moved, and its functions stay where they are", "[share][registry]") {
    Registry registry;
    registry.add("f", [] { return 5; });
    const FunctionRecord* function = registry.find("f");
    const Registry moved = std::move(registry);
    CHECK(moved.find("f") == function);
    CHECK(call(*function).result == 5);
}

TEST_CASE("ten thousand functions are found like one", "[share][registry]") {
    Registry registry;
    for (int i = 0; i < 10'000; ++i)
        registry.add(std::to_string(i), [i] { return i; });
    CHECK(registry.size() == 10'000);
    CHECK(call(*registry.find("9999")).result == 9999);
}
