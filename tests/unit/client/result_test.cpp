#include <catch2/catch_test_macros.hpp>
#include <map>
#include <optional>
#include <tuple>
#include <vector>

#include <shared_tensor/struct.hpp>

#include "scripted.hpp"

namespace results {
struct Box {
    double x;
    std::vector<std::string> names;
};
SHARED_TENSOR_FIELDS(Box, x, names);
}  // namespace results

using namespace shared_tensor;
using namespace shared_tensor::test;

namespace {

template <class R>
R result(const Json& json) {
    ScriptedClient client({gives(json)});
    return client.call<R>("f");
}

template <class R>
ResultMismatch mismatch(const Json& json) {
    try {
        result<R>(json);
    } catch (const ResultMismatch& error) {
        return error;
    }
    throw std::logic_error("it fitted");
}

}  // namespace

TEST_CASE("A result becomes the type that was asked for", "[client]") {
    CHECK(result<int>(7) == 7);
    CHECK(result<double>(7) == 7.0);
    CHECK(result<std::string>("x") == "x");
    CHECK(result<std::optional<int>>(nullptr) == std::nullopt);
    CHECK(result<std::vector<int>>({1, 2}) == std::vector{1, 2});
    CHECK(result<std::tuple<int, std::string>>({1, "x"}) == std::tuple(1, std::string("x")));
    CHECK(result<Json>({{"a", {1, nullptr}}}) == Json{{"a", {1, nullptr}}});
    CHECK(result<results::Box>({{"x", 1.5}, {"names", {"n"}}}).names.at(0) == "n");
}

TEST_CASE("call<void> takes any result and keeps none", "[client]") {
    ScriptedClient client({gives({{"a", 1}})});
    client.call<void>("f");
}

TEST_CASE("A result of another type says where it differs, what was wanted and what came", "[client]") {
    const auto error = mismatch<std::map<std::string, std::vector<int>>>({{"a", {1, "two"}}});
    CHECK(error.path == "a[1]");
    CHECK(error.expected == "integer from -2147483648 to 2147483647");
    CHECK(error.got == "string \"two\"");
    CHECK(std::string(error.what()) ==
          "the result does not fit the type asked for: a[1]: expected integer from "
          "-2147483648 to 2147483647, got string \"two\"");
}

TEST_CASE("A number that does not fit is never cut", "[client]") {
    CHECK(mismatch<std::uint8_t>(256).path.empty());
    CHECK(mismatch<int>(1.5).got == "number 1.5");
}

TEST_CASE("Integers beyond 2^53 come through exactly", "[client]") {
    CHECK(result<std::uint64_t>(18446744073709551615U) == 18446744073709551615U);
    CHECK(result<std::int64_t>(-9223372036854775807) == -9223372036854775807);
}
