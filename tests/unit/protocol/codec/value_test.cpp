#include "protocol/codec/value.hpp"

#include <catch2/catch_test_macros.hpp>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "support/fake_tensor.hpp"

using namespace shared_tensor;
using namespace shared_tensor::codec;
using shared_tensor::test::FakePort;
using shared_tensor::test::FakeTensor;

TEST_CASE("encoding puts descriptors where the tensors belong, for each reader, and nowhere else", "[codec][value]") {
    const std::vector<TensorPointer> tensors = {std::make_shared<FakeTensor>("x"), std::make_shared<FakeTensor>("y")};
    const std::pair<const char*, const char*> table[] = {
        {R"({"a": [{"$tensor": 1}, {"b": {"$tensor": 0}}], "c": 1})",
         R"({"a": [{"$tensor": {"name": "y"}}, {"b": {"$tensor": {"name": "x"}}}], "c": 1})"},
        {R"([{"$literal": {"$tensor": 0}}, {"$literal": {"$tensor": {"$tensor": 0}}}])",  // a user's own object
         R"([{"$literal": {"$tensor": 0}}, {"$literal": {"$tensor": {"$tensor": {"name": "x"}}}}])"},
        {R"({"a": 1})", R"({"a": 1})"},
    };
    FakePort port;
    for (const auto& [json, encoded] : table) {
        INFO(json);
        const Value value{Json::parse(json), tensors};
        for (int reader = 0; reader < 2; ++reader)
            CHECK(encode(value, port) == Json::parse(encoded));
        CHECK(value.json == Json::parse(json));
    }
}

TEST_CASE("the memory of a value counts tensors exactly, host and device apart", "[codec][value]") {
    const Json json = Json::parse(R"([{"$tensor": 0}, {"$tensor": 1}, {"$tensor": 2}])");
    const auto without = memory_of({json, {}});
    const auto with = memory_of({json,
                                 {std::make_shared<FakeTensor>("x", 1000), std::make_shared<FakeTensor>("y", 20, true),
                                  std::make_shared<FakeTensor>("z", 3)}});
    CHECK(with.host == without.host + 1003);
    CHECK(with.device == 20);
    CHECK(without.device == 0);
}

TEST_CASE("the memory of a value grows with its texts, elements and members", "[codec][value]") {
    const auto host = [](const Json& json) { return memory_of({json, {}}).host; };
    CHECK(host(std::string(100'000, 'x')) >= 100'000);
    CHECK(host(Json(std::vector<int>(1000, 1))) >= 1000 * sizeof(Json));
    CHECK(host(Json{{std::string(10'000, 'k'), 1}}) >= 10'000);
    CHECK(host(nullptr) > 0);
}
