#include <ATen/ops/full.h>
#include <torch/csrc/jit/api/module.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "call.hpp"
#include "runtime/models/model.hpp"
#include "torch/load_model.hpp"

using namespace shared_tensor;
using namespace shared_tensor::test;
using Catch::Matchers::Message;

namespace {

std::string complaint(const std::string& path) {
    try {
        models::load_model("m", path);
    } catch (const std::runtime_error& error) {
        return error.what();
    }
    return "none";
}

}  // namespace

TEST_CASE("a file that is missing, a folder and other files are rejected in one line that names model and path",
          "[models]") {
    CHECK(complaint("/no/such/file") == "model m: /no/such/file does not exist");
    CHECK(complaint("/") == "model m: / is no regular file");
    const TemporaryFolder folder;
    const std::string text = folder.write("text", "hello"), empty = folder.write("empty", "");
    CHECK(complaint(text) == "model m: " + text + " is no TorchScript file: torch.jit.save makes one");
    CHECK(complaint(empty) == "model m: " + empty + " is no TorchScript file: torch.jit.save makes one");
}

TEST_CASE("an archive that holds no model is rejected in one line", "[models]") {
    const TemporaryFolder folder;
    const std::string broken = folder.write("broken", "PK\3\4 and nothing that follows");
    const std::string line = complaint(broken);
    CHECK(line.starts_with("model m: " + broken + " is no TorchScript file that this libtorch reads: "));
    CHECK(line.find('\n') == std::string::npos);
}

TEST_CASE("a model without a method that can be shared is rejected with the reason", "[models]") {
    CHECK_THROWS_WITH(
        model_of("def f(self, x: Dict[int, int]) -> int:\n    return 1\n"),
        Catch::Matchers::ContainsSubstring(
            "has no method that can be shared (f: parameter x has the type Dict[int, int], which can't cross)"));
}

TEST_CASE("name=path names a model, with how it keeps state behind it", "[models]") {
    const auto plain = models::parse_model_argument("vad=/models/a=b?c.jit");
    CHECK(plain.name == "vad");
    CHECK(plain.path == "/models/a=b?c.jit");
    CHECK(plain.options.state == models::State::copied);
    CHECK(models::parse_model_argument("m=x?stateful=yes").options.state == models::State::copied);
    CHECK(models::parse_model_argument("m=x?stateful=deep").options.state == models::State::deep);
    CHECK(models::parse_model_argument("m=x?stateful=shared").options.state == models::State::shared);
    const auto stateless = models::parse_model_argument("m=x?stateful=no");
    CHECK(stateless.options.state == models::State::none);
    CHECK(stateless.path == "x");
}

TEST_CASE("a model argument that is none is rejected with its form", "[models]") {
    for (const auto* text : {"", "m", "=x", "m="}) {
        CHECK_THROWS_MATCHES(
            models::parse_model_argument(text), std::invalid_argument,
            Message("model \"" + std::string(text) + "\": write name=path, or name=path?stateful=deep"));
    }
    CHECK_THROWS_MATCHES(models::parse_model_argument("m=x?stateful=perhaps"), std::invalid_argument,
                         Message("model \"m=x?stateful=perhaps\": stateful is yes, deep, shared or no"));
}

TEST_CASE("device, dtype and autograd of a model stand behind its path as well", "[models]") {
    const auto placed = models::parse_model_argument("m=x?stateful=no&device=cuda:1&dtype=float16&grad=yes");
    CHECK(placed.path == "x");
    CHECK(placed.options.state == models::State::none);
    CHECK(placed.options.device == "cuda:1");
    CHECK(placed.options.dtype == "float16");
    CHECK(placed.options.grad);
    CHECK(models::parse_model_argument("m=a?b=c").path == "a?b=c");  // a path with a question mark of its own
    CHECK_THROWS_AS(models::parse_model_argument("m=x?grad=perhaps"), std::invalid_argument);
}

TEST_CASE("only floating-point tensors of a model become another dtype", "[models]") {
    torch::jit::Module module("M");
    module.register_parameter("weight", at::full({2}, 2.0, at::kFloat), false);
    module.register_buffer("index", at::full({1}, 1, at::kLong));
    module.define("def f(self) -> List[int]:\n    return [self.weight.element_size(), self.index.element_size()]\n");
    const TemporaryFolder folder;
    const std::string file = folder.file("m.pt");
    module.save(file);
    models::LoadOptions options;
    options.dtype = "float16";
    options.state = models::State::none;
    const auto model = models::load_model("m", file, options);
    CHECK(call(*model, "f", codec::Json::array()) == codec::Json({2, 8}));
}
