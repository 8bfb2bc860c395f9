#include <catch2/catch_test_macros.hpp>
#include <shared_tensor/codecs.hpp>
#include <shared_tensor/json.hpp>

#include <shared_tensor/struct.hpp>
#include <shared_tensor/tensor_ref.hpp>
#include "support/codec_round.hpp"

using namespace shared_tensor;
using namespace shared_tensor::test;

namespace schema_test {

struct Part {
    int size = 0;
    std::optional<std::string> note;
};
SHARED_TENSOR_FIELDS(Part, size, note);
enum class Mode { fast, exact };
SHARED_TENSOR_ENUM(Mode, fast, exact);

}  // namespace schema_test

TEST_CASE("each type has its JSON Schema", "[share][schema]") {
    const Json number = Json::parse(R"({"anyOf": [{"type": "number"}, {"enum": ["NaN", "Infinity", "-Infinity"]}]})");
    CHECK(schema<bool>() == Json{{"type", "boolean"}});
    CHECK(schema<std::uint8_t>() == Json::parse(R"({"type": "integer", "minimum": 0, "maximum": 255})"));
    CHECK(schema<std::int64_t>() == Json::parse(R"({"type": "integer", "minimum": -9223372036854775808,
                                                    "maximum": 9223372036854775807})"));
    CHECK(schema<std::uint64_t>()["maximum"] == 18446744073709551615U);
    CHECK(schema<float>() == number);
    CHECK(schema<double>() == number);
    CHECK(schema<std::string>() == Json{{"type", "string"}});
    CHECK(schema<Bytes>() == Json::parse(R"({"type": "string", "contentEncoding": "base64"})"));
    CHECK(schema<std::optional<bool>>() == Json::parse(R"({"anyOf": [{"type": "boolean"}, {"type": "null"}]})"));
    CHECK(schema<std::vector<bool>>() == Json::parse(R"({"type": "array", "items": {"type": "boolean"}})"));
    CHECK(schema<std::array<bool, 2>>() ==
          Json::parse(R"({"type": "array", "items": {"type": "boolean"}, "minItems": 2, "maxItems": 2})"));
    CHECK(schema<std::map<std::string, bool>>() ==
          Json::parse(R"({"type": "object", "additionalProperties": {"type": "boolean"}})"));
    CHECK(schema<std::pair<bool, std::string>>() ==
          Json::parse(R"({"type": "array", "prefixItems": [{"type": "boolean"}, {"type": "string"}],
                          "minItems": 2, "maxItems": 2})"));
    CHECK(schema<Json>() == Json::object());
}

TEST_CASE("a struct's schema names its members and which are required", "[share][schema]") {
    CHECK(schema<schema_test::Part>() == Json::parse(R"({
        "type": "object",
        "properties": {
            "size": {"type": "integer", "minimum": -2147483648, "maximum": 2147483647},
            "note": {"anyOf": [{"type": "string"}, {"type": "null"}]}
        },
        "required": ["size"],
        "additionalProperties": false})"));
}

TEST_CASE("an enum's schema lists its names", "[share][schema]") {
    CHECK(schema<schema_test::Mode>() == Json::parse(R"({"enum": ["fast", "exact"]})"));
}

TEST_CASE("a tensor's schema refers to the one of all tensors", "[share][schema]") {
    // "$ref" is wrapped by the sink like any key with '$'; who writes the OpenRPC document takes it out.
    CHECK(schema<TensorRef>() == Json::parse(R"({"$literal": {"$ref": "#/components/schemas/Tensor"}})"));
}
