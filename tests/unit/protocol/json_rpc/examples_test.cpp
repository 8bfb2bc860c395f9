#include <catch2/catch_test_macros.hpp>
#include <string>

#include "example_server.hpp"
#include "support/json_rpc_answers.hpp"
#include "support/json_rpc_examples.hpp"

namespace shared_tensor::test {
namespace {

template <std::size_t Count>
void replay(const JsonRpcExample (&examples)[Count]) {
    for (const auto& example : examples) {
        const auto said = answer(example.request);
        INFO(example.name << "\n  request:  " << example.request << "\n  expected: " << example.answer
                          << "\n  answered: " << said);
        CHECK(same_answer(example.answer, said));
    }
}

TEST_CASE("json_rpc: the specification's examples are answered as it says", "[json_rpc]") {
    replay(kSpecificationExamples);
}

TEST_CASE("json_rpc: details that peers get wrong are answered right", "[json_rpc]") { replay(kPeerDetails); }

TEST_CASE("json_rpc: the comparison of answers tells them apart", "[json_rpc]") {
    CHECK(same_answer(R"([{"id":1},{"id":2}])", R"([{"id":2},{"id":1}])"));
    CHECK(same_answer(R"({"error":{"code":1}})", R"({"error":{"code":1,"data":{}}})"));
    CHECK_FALSE(same_answer(R"({"error":{"code":1}})", R"({"error":{"code":2}})"));
    CHECK_FALSE(same_answer(R"([{"id":1},{"id":1}])", R"([{"id":2},{"id":1}])"));
    CHECK_FALSE(same_answer(R"([{"id":1}])", R"({"id":1})"));
    CHECK_FALSE(same_answer(R"({"id":1})", R"({"id":1.0})"));
    CHECK_FALSE(same_answer(R"({"id":1})", R"({"id":"1"})"));
    CHECK_FALSE(same_answer("", R"({"id":1})"));
    CHECK_FALSE(same_answer(R"({"id":1})", ""));
    CHECK_FALSE(same_answer(R"({"id":1})", "not JSON"));
}

}  // namespace
}  // namespace shared_tensor::test
