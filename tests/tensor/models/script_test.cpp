#include <catch2/catch_test_macros.hpp>

#include "call.hpp"

using namespace shared_tensor;
using namespace shared_tensor::test;
using codec::Json;

TEST_CASE("values of every type that crosses go in and come back", "[models]") {
    struct Row {
        const char* type;
        const char* value;
    };
    const Row rows[] = {
        {"int", "-9007199254740993"},
        {"float", "0.1"},
        {"float", "\"-Infinity\""},
        {"bool", "true"},
        {"str", R"("Grüße")"},
        {"Optional[int]", "null"},
        {"Optional[int]", "7"},
        {"List[int]", "[1,2,3]"},
        {"List[float]", "[]"},
        {"List[List[str]]", R"([["a"],[],["b","c"]])"},
        {"List[Optional[bool]]", "[true,null]"},
        {"Dict[str, float]", R"({"a":1.5,"b":2.5})"},
        {"Dict[str, List[int]]", R"({"a":[1],"b":[]})"},
        {"Tuple[int, str, List[float]]", R"([1,"x",[2.5]])"},
        {"List[Tuple[int, bool]]", "[[1,true],[2,false]]"},
    };
    for (const Row& row : rows) {
        INFO(row.type);
        const auto model =
            model_of(std::string("def same(self, x: ") + row.type + ") -> " + row.type + ":\n    return x\n");
        CHECK(call(*model, "same", Json::array({Json::parse(row.value)})) == Json::parse(row.value));
    }
}

TEST_CASE("tensors cross inside lists, dicts and tuples", "[models]") {
    const auto model = model_of(R"(
def sums(self, parts: Dict[str, List[Tensor]]) -> Tuple[Tensor, Dict[str, Tensor]]:
    found: Dict[str, Tensor] = {}
    for key, tensors in parts.items():
        found[key] = tensors[0] + tensors[1]
    return found["a"], found
)");
    const auto tensor = [](const char* data) {
        return Json{{"$tensor", {{"dtype", "float32"}, {"data", Json::parse(data)}}}};
    };
    const Json result = call(*model, "sums", Json::array({{{"a", {tensor("[1, 2]"), tensor("[10, 20]")}}}}));
    CHECK(result[0]["$tensor"]["data"] == Json::parse("[11.0, 22.0]"));
    CHECK(result[1]["a"]["$tensor"]["data"] == Json::parse("[11.0, 22.0]"));
}

TEST_CASE("a default of the script's is used when the argument is left out", "[models]") {
    const auto model = model_of("def scaled(self, x: float, factor: float = 2.5) -> float:\n    return x * factor\n");
    CHECK(call(*model, "scaled", Json::array({4})) == Json(10.0));
    const auto& scaled = function(*model, "scaled");
    CHECK(scaled.parameters()[0].required);
    CHECK_FALSE(scaled.parameters()[1].required);
    CHECK(written([&](ValueWriter writer) { scaled.default_value(1, writer); }) == Json(2.5));
}

TEST_CASE("an optional parameter may be left out", "[models]") {
    const auto model = model_of("def given(self, x: Optional[int]) -> bool:\n    return x is not None\n");
    CHECK(call(*model, "given", Json::array()) == Json(false));
    CHECK(call(*model, "given", Json::array({3})) == Json(true));
}

TEST_CASE("an argument that does not fit is rejected with its place, what was expected and what came", "[models]") {
    const auto model = model_of(R"(
def f(self, n: int, names: List[str], pair: Tuple[int, float], x: Tensor) -> int:
    return n
)");
    const auto tensor = Json{{"$tensor", {{"data", {1}}}}};
    struct Row {
        Json params;
        const char* parameter;
        const char* expected;
        const char* got;
    };
    const Row rows[] = {
        {{"a", {"b"}, {1, 2}, tensor}, "n", "integer from -9223372036854775808 to 9223372036854775807", "string \"a\""},
        {{1.5, {"b"}, {1, 2}, tensor}, "n", "integer from -9223372036854775808 to 9223372036854775807", "number 1.5"},
        {{1, {"b", 2}, {1, 2}, tensor}, "names[1]", "string", "number 2"},
        {{1, {"b"}, Json::array({1}), tensor}, "pair", "array of 2", "array of 1"},
        {{1, {"b"}, {1, "x"}, tensor}, "pair[1]", "number", "string \"x\""},
        {{1, {"b"}, {1, 2}, 3}, "x", "tensor", "number 3"},
        {{1, {"b"}, {1, 2}}, "x", "a value: the parameter is required", "nothing"},
        {{1, {"b"}, {1, 2}, {{"$tensor", {{"shape", {-1}}, {"data", {1}}}}}},
         "x.shape[0]",
         "integer from 0 to 9223372036854775807",
         "number -1"},
    };
    for (const Row& row : rows) {
        const CallFailure failed = failure(*model, "f", row.params);
        CHECK(failed.kind == CallFailure::Kind::invalid_params);
        CHECK(failed.parameter == row.parameter);
        CHECK(failed.expected == row.expected);
        CHECK(failed.got == row.got);
    }
}

TEST_CASE("a method whose types can't cross is left out with the reason, the others are shared", "[models]") {
    const auto model = model_of(R"(
def taken(self, x: int) -> int:
    return x
def rejected(self, x: Dict[int, str]) -> int:
    return 1
def complex_result(self) -> complex:
    return complex(1.0, 2.0)
def _private(self) -> int:
    return 1
)");
    REQUIRE(model->functions().size() == 1);
    CHECK(model->functions()[0]->name() == "m.taken");
    CHECK(model->left_out() ==
          std::vector<std::string>{"rejected: parameter x has the type Dict[int, str], which can't cross",
                                   "complex_result: the result has the type complex, which can't cross"});
}

TEST_CASE("schemas say what a method takes and gives", "[models]") {
    const auto model = model_of(
        "def f(self, x: Tensor, names: Optional[List[str]]) -> Dict[str, Tuple[bool, int]]:\n"
        "    return {\"a\": (True, 1)}\n");
    const auto& f = function(*model, "f");
    CHECK(written([&](ValueWriter writer) { f.parameter_schema(0, writer); }) ==
          Json::parse(R"({"$literal": {"$ref": "#/components/schemas/Tensor"}})"));
    CHECK(written([&](ValueWriter writer) { f.parameter_schema(1, writer); }) ==
          Json::parse(R"({"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "null"}]})"));
    const Json result = written([&](ValueWriter writer) { f.result_schema(writer); });
    CHECK(result["type"] == "object");
    CHECK(result["additionalProperties"]["prefixItems"][0] == Json{{"type", "boolean"}});
    CHECK(result["additionalProperties"]["minItems"] == 2);
}

TEST_CASE("the documentation of a method shows its signature", "[models]") {
    const auto model = model_of("def f(self, x: Tensor, n: int = 3) -> Tensor:\n    return x * n\n");
    CHECK(function(*model, "f").options().doc == "Method of the TorchScript model m: f(x: Tensor, n: int) -> Tensor");
}

TEST_CASE("an error of an operator arrives without the trace through the model's source", "[models]") {
    const auto model = model_of("def f(self, x: Tensor) -> Tensor:\n    return x.view([7])\n");
    const CallFailure failed = failure(*model, "f", Json::array({{{"$tensor", {{"data", {1, 2}}}}}}));
    CHECK(failed.kind == CallFailure::Kind::threw);
    CHECK(failed.type == "RuntimeError");
    CHECK(failed.message == "shape '[7]' is invalid for input of size 2");
}

TEST_CASE("a model that runs out of memory says so", "[models]") {
    const auto model = model_of("def f(self, n: int) -> Tensor:\n    return torch.zeros([n])\n");
    CHECK(failure(*model, "f", Json::array({std::int64_t{1} << 50})).kind == CallFailure::Kind::out_of_memory);
}

TEST_CASE("a result that can't cross is the model's failure, not the caller's", "[models]") {
    const auto model = model_of("def f(self, x: Tensor) -> Tensor:\n    return x.to_sparse()\n");
    const CallFailure failed = failure(*model, "f", Json::array({{{"$tensor", {{"data", {1.0, 2.0}}}}}}));
    CHECK(failed.kind == CallFailure::Kind::threw);
    CHECK(failed.message == "value: expected dense tensor, got a sparse tensor (call to_dense() first)");
}

TEST_CASE("results carry no history of gradients", "[models]") {
    const auto model = model_of("def f(self) -> bool:\n    return (self.weight * 2).requires_grad\n");
    CHECK(call(*model, "f", Json::array()) == Json(false));
}
