// SHARE beside functions of this file, as a user writes it.

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cctype>
#include <string>

#include <shared_tensor/registry.hpp>
#include <shared_tensor/share.hpp>
#include "call.hpp"

namespace share_test {

double add(double a, double b) { return a + b; }
SHARE(add, arg("a"), arg("b") = 1.0, doc("The sum."), execution::inline_, cached(60s));

// A user's own functions may be called like the words of SHARE.
int doc(int x) { return x; }
int version() { return 2; }
SHARE(doc, arg("x"));
SHARE(version);

// Every option is found without `using namespace shared_tensor`.
void placed() {}
SHARE(placed, no_grad(), on_device("cpu"), as_dtype("float16"), borrows(), idempotent(), concurrency(3), timeout(2s),
      version("7"), execution::task);

namespace {
int unnamed() { return 5; }
SHARE(unnamed);
}  // namespace

int twice(int x) { return 2 * x; }
std::string twice(const std::string& x) { return x + x; }
SHARE_AS("share_test.twice_number", static_cast<int (*)(int)>(twice));
SHARE_AS("share_test.twice_text", static_cast<std::string (*)(const std::string&)>(twice), arg("x"), concurrency(1));

namespace inner {
bool deep() { return true; }
bool deep2() { return true; }
bool deeper() { return true; }
SHARE(deeper);
}  // namespace inner
static int outside() { return 3; }
static int hidden() noexcept { return 1; }
SHARE(inner::deep);
SHARE(share_test::hidden);  // its own namespace once more

}  // namespace share_test

static int global() { return 2; }
SHARE(global);
SHARE(share_test::inner::deep2);
SHARE(::share_test::outside);
SHARE_AS("add", share_test::add);

using namespace shared_tensor;
using namespace shared_tensor::test;

namespace {

/// Only this file's, by the place that they remember: other tests of this program share functions too.
Registry shared_here() {
    Registry registry;
    for (const auto* record = detail::share_records; record != nullptr; record = record->next) {
        if (record->function->where().find("/share_test.cpp:") == std::string::npos) continue;
        registry.add(std::shared_ptr<const FunctionRecord>(std::shared_ptr<void>(), record->function));
    }
    return registry;
}

}  // namespace

TEST_CASE("SHARE takes the name with its namespaces, with dots for scopes", "[share][macro]") {
    const Registry registry = shared_here();
    std::vector<std::string> names;
    for (const auto& function : registry.functions())
        names.emplace_back(function->name());
    CHECK(names == std::vector<std::string>{"add", "global", "share_test.add", "share_test.doc", "share_test.hidden",
                                            "share_test.inner.deep", "share_test.inner.deep2",
                                            "share_test.inner.deeper", "share_test.outside", "share_test.placed",
                                            "share_test.twice_number", "share_test.twice_text", "share_test.unnamed",
                                            "share_test.version"});
}

TEST_CASE("a shared function is called, with its options, and knows where it was shared", "[share][macro]") {
    const Registry registry = shared_here();
    const auto result = [&](const char* name, std::vector<Json> arguments) {
        return call(*registry.find(name), std::move(arguments)).result;
    };
    CHECK(result("share_test.add", {1}) == 2.0);
    CHECK(result("share_test.add", {1, 5}) == 6.0);
    CHECK(result("share_test.doc", {4}) == 4);
    CHECK(result("share_test.version", {}) == 2);
    CHECK(result("share_test.twice_number", {4}) == 8);
    CHECK(result("share_test.twice_text", {"ab"}) == "abab");
    const FunctionOptions& sum = registry.find("share_test.add")->options();
    CHECK(sum.doc == "The sum.");
    CHECK(sum.runs == execution::inline_);
    CHECK(sum.cache_ttl == std::chrono::minutes(1));
    const FunctionOptions& options = registry.find("share_test.placed")->options();
    CHECK(options.no_grad);
    CHECK(options.device == "cpu");
    CHECK(options.dtype == "float16");
    CHECK(options.borrows);
    CHECK(options.idempotent);
    CHECK(options.concurrency == 3);
    CHECK(options.timeout == std::chrono::seconds(2));
    CHECK(options.version == "7");
    CHECK(options.runs == execution::task);
    const auto place = registry.find("share_test.twice_number")->where();
    CHECK(place.find("share_test.cpp:") != std::string::npos);
    CHECK(std::isdigit(static_cast<unsigned char>(place.back())) != 0);
}

TEST_CASE("from_shared holds what all files of the module shared", "[share][macro]") {
    const Registry registry = Registry::from_shared();
    CHECK(registry.find("share_test.inner.deep") != nullptr);
    CHECK(registry.find("share_again_test.elsewhere") != nullptr);
}

TEST_CASE("a module's manifest tells its versions and its functions", "[share][macro]") {
    const auto* manifest = shared_tensor_plugin_v1();
    CHECK(manifest->struct_size == sizeof(detail::PluginManifest));
    CHECK(manifest->abi == SHARED_TENSOR_PLUGIN_ABI);
    CHECK(std::string(manifest->library_version) == SHARED_TENSOR_VERSION);
    CHECK(manifest->records == detail::share_records);
    CHECK(manifest->framework == nullptr);
}

TEST_CASE("scopes become dots in names on the wire", "[share][macro]") {
    CHECK(detail::wire_name("add") == "add");
    CHECK(detail::wire_name("a::b::c") == "a.b.c");
    CHECK(detail::wire_name("::a::b") == "a.b");
    CHECK(detail::wire_name("") == "");
}
