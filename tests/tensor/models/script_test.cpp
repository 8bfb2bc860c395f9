#include "call.hpp"  // before Catch, whose CHECK libtorch would replace by its own

#include <catch2/matchers/catch_matchers_string.hpp>
#include <thread>

using namespace shared_tensor;
using namespace shared_tensor::test;
using codec::Json;
using models::State;

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

TEST_CASE("a default of the script's is used when the argument is left out, and none for an optional one", "[models]") {
    const auto model = model_of(
        "def scaled(self, x: float, factor: float = 2.5) -> float:\n    return x * factor\n"
        "def given(self, x: Optional[int]) -> bool:\n    return x is not None\n");
    CHECK(call(*model, "scaled", Json::array({4})) == Json(10.0));
    const auto& scaled = function(*model, "scaled");
    CHECK(scaled.parameters()[0].required);
    CHECK_FALSE(scaled.parameters()[1].required);
    CHECK(written([&](ValueWriter writer) { scaled.default_value(1, writer); }) == Json(2.5));
    CHECK(call(*model, "given") == Json(false));
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
        {{1, {"b"}, {1, 2}}, "x", "a value", "nothing"},
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

TEST_CASE("schemas and documentation say what a method takes and gives", "[models]") {
    const auto model = model_of(
        "def f(self, x: Tensor, names: Optional[List[str]], n: int = 3) -> Dict[str, Tuple[bool, int]]:\n"
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
    CHECK(f.options().doc.starts_with("Method of the TorchScript model m: f(x: Tensor, names: "));
}

TEST_CASE("a failure of a model's method says what a caller needs to know", "[models]") {
    const auto model = model_of(
        "def view(self, x: Tensor) -> Tensor:\n    return x.view([7])\n"
        "def large(self, x: Tensor) -> Tensor:\n    return torch.zeros([x.numel() << 50])\n"
        "def sparse(self, x: Tensor) -> Tensor:\n    return x.to_sparse()\n"
        "def grown(self) -> bool:\n    return (self.weight * 2).requires_grad\n");
    const Json x = Json::array({{{"$tensor", {{"data", {1.0, 2.0}}}}}});
    const CallFailure of_torch = failure(*model, "view", x);  // without the trace through the model's source
    CHECK(of_torch.kind == CallFailure::Kind::threw);
    CHECK(of_torch.type == "RuntimeError");
    CHECK(of_torch.message == "shape '[7]' is invalid for input of size 2");
    CHECK(failure(*model, "large", x).kind == CallFailure::Kind::out_of_memory);
    const CallFailure of_result = failure(*model, "sparse", x);  // the model's, not the caller's
    CHECK(of_result.kind == CallFailure::Kind::threw);
    CHECK(of_result.message == "value: expected dense tensor, got a sparse tensor (call to_dense() first)");
    CHECK(call(*model, "grown") == Json(false));  // results carry no history of gradients
}

namespace {

/// Counts its calls in an attribute, in a list, in a tensor that is replaced and in a buffer that is changed in place;
/// and changes its parameter.
constexpr const char* kCounter = R"(
def step(self) -> List[int]:
    self.count = self.count + 1
    self.seen.append(1)
    self.last = self.last + 1
    self.buffer.add_(1)
    return [self.count, len(self.seen), int(self.last), int(self.buffer)]
def double_weight(self) -> float:
    self.weight.mul_(2)
    return float(self.weight)
)";

Json step(const models::Model& model, std::string_view session) { return call(model, "step", Json::array(), session); }

}  // namespace

TEST_CASE("what calls of one, of another and of no session see of a model's state depends on stateful=", "[models]") {
    struct Row {
        State state;
        Json of_another, of_the_same, of_none;  // attribute, list, replaced tensor, buffer changed in place
        double weight;                          // that another session sees after one has doubled it
        std::size_t instances;
    };
    const Row rows[] = {
        {State::copied, {1, 1, 1, 1}, {3, 3, 3, 3}, {1, 1, 1, 1}, 8, 2},
        {State::deep, {1, 1, 1, 1}, {3, 3, 3, 3}, {1, 1, 1, 1}, 4, 2},
        {State::shared, {1, 1, 1, 3}, {3, 3, 3, 4}, {1, 1, 1, 5}, 8, 2},
        {State::none, {3, 3, 3, 3}, {4, 4, 4, 4}, {5, 5, 5, 5}, 8, 0},
    };
    for (const Row& row : rows) {
        INFO(static_cast<int>(row.state));
        models::LoadOptions options;
        options.state = row.state;
        const auto model = model_of(kCounter, options);
        step(*model, "a");
        step(*model, "a");
        CHECK(step(*model, "b") == row.of_another);
        CHECK(step(*model, "a") == row.of_the_same);
        CHECK(step(*model, "") == row.of_none);
        CHECK(model->instances() == row.instances);
        call(*model, "double_weight", Json::array(), "a");
        CHECK(call(*model, "double_weight", Json::array(), "b") == Json(row.weight));
        CHECK(function(*model, "step").options().stateful == (row.state != State::none));  // for the dispatcher
        model->session_closed("a");
        model->session_closed("never opened");
        CHECK(model->instances() == (row.instances > 0 ? 1 : 0));
        if (row.state == State::copied) {
            CHECK(step(*model, "") == Json({1, 1, 1, 1}));
            CHECK(step(*model, "a") == Json({1, 1, 1, 1}));
        }
    }
}

TEST_CASE("a result stays as it is when a later call changes the model's state", "[models]") {
    const auto model = model_of(
        "def whole(self) -> Tensor:\n    self.buffer.add_(1)\n    return self.buffer\n"
        "def view(self) -> Tensor:\n    self.buffer.add_(1)\n    return self.buffer[0:1]\n"
        "def inside(self) -> Dict[str, Tensor]:\n    self.buffer.add_(1)\n    return {'b': self.buffer}\n"
        "def fresh(self) -> Tensor:\n    self.buffer.add_(1)\n    return self.buffer + 1\n");
    for (const char* method : {"whole", "view", "inside", "fresh"}) {
        INFO(method);
        const auto first = try_call(function(*model, method), Json::array(), method,
                                    [&] { call(*model, method, Json::array(), method); });
        CHECK_THAT(std::get<Json>(first).dump(),
                   Catch::Matchers::ContainsSubstring(method == std::string("fresh") ? "[2.0]" : "[1.0]"));
        CHECK_THAT(call(*model, method, Json::array(), method).dump(),
                   Catch::Matchers::ContainsSubstring(method == std::string("fresh") ? "[4.0]" : "[3.0]"));
    }
}

TEST_CASE("one session too many is rejected with what to do, known ones go on", "[models]") {
    models::LoadOptions options;
    options.max_instances = 2;
    const auto model = model_of(kCounter, options);
    step(*model, "a");
    step(*model, "b");
    const CallFailure failed = failure(*model, "step", Json::array(), "c");
    CHECK(failed.kind == CallFailure::Kind::threw);
    CHECK(failed.message ==
          "2 sessions hold an instance of this model already: close one that is not used any more "
          "(session.close), or call without a session");
    CHECK(step(*model, "a") == Json({2, 2, 2, 2}));
    CHECK(step(*model, "") == Json({1, 1, 1, 1}));
    model->session_closed("b");
    CHECK(step(*model, "c") == Json({1, 1, 1, 1}));
}

TEST_CASE("calls of one session that come at once still run one after another", "[models]") {
    const auto model = model_of(kCounter);
    constexpr int kCalls = 200;
    {
        std::vector<std::jthread> threads;
        for (int i = 0; i < 4; ++i) {
            threads.emplace_back([&] {
                for (int k = 0; k < kCalls; ++k)
                    try_call(function(*model, "step"), Json::array(), "a");
            });
        }
    }
    const int next = 4 * kCalls + 1;
    CHECK(step(*model, "a") == Json({next, next, next, next}));
}

TEST_CASE("functions outlive their model", "[models]") {
    auto model = model_of(kCounter);
    const auto kept = model->functions().front();
    const std::string name(kept->name());
    model.reset();
    CHECK(kept->name() == name);
    CHECK(written([&](ValueWriter writer) { kept->result_schema(writer); })["type"] == "array");
}
