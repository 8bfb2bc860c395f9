#include "call.hpp"  // before Catch, whose CHECK libtorch would replace by its own

#include <sys/stat.h>

#include <atomic>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <filesystem>
#include <shared_tensor/torch.hpp>
#include <thread>

#include "runtime/models/model_table.hpp"

using namespace shared_tensor;
using namespace shared_tensor::test;
using Catch::Matchers::ContainsSubstring;
using codec::Json;
using models::ModelTable;
using models::State;

namespace {

/// A model with a parameter of three numbers, whose f() is `result`.
void write_model(const std::string& path, int result) {
    torch::jit::Module module("M");
    module.register_parameter("weight", at::full({3}, 1.0, at::kFloat), false);
    module.define("def f(self) -> int:\n    return " + std::to_string(result) + "\n");
    module.save(path);
}

/// What a file that is no model is rejected with.
std::string complaint(const std::string& path) {
    try {
        models::load_model("m", path);
    } catch (const std::runtime_error& error) {
        return error.what();
    }
    return "none";
}

struct Table {
    explicit Table(const Registry& registry = {}, std::size_t most = 10)
        : functions(registry), table(functions, &models::load_model, {folder.path()}, most) {}

    /// The data of the error; empty: it was loaded.
    Json rejection(const std::string& name, const std::string& file, bool replace = false) {
        const auto loaded = table.load({name, file, {}, replace});
        const auto* rejected = std::get_if<json_rpc::Error>(&loaded);
        return rejected != nullptr ? rejected->data : Json::object();
    }
    bool load(const std::string& name, const std::string& file, bool replace = false) {
        return std::holds_alternative<ModelTable::Info>(table.load({name, file, {}, replace}));
    }
    void write(const std::string& file, int result) { write_model(folder.file(file), result); }
    Json run(const std::string& name) {
        const auto entry = functions.find(name);
        if (entry == nullptr) return nullptr;
        return std::get<Json>(try_call(*entry->shared, Json::array()));
    }

    TemporaryFolder folder;
    runtime::FunctionTable functions;
    ModelTable table;
};

}  // namespace

TEST_CASE("Only files below the folders are loaded, and nobody is told where these are", "[models]") {
    Table models;
    models.write("inside.pt", 1);
    models.write("native.pt2", 1);  // it holds native code
    const TemporaryFolder elsewhere;
    write_model(elsewhere.file("outside.pt"), 2);
    namespace fs = std::filesystem;
    fs::create_directory(models.folder.file("sub"));
    models.write("sub/deep.pt", 3);
    fs::create_symlink(elsewhere.file("outside.pt"), models.folder.file("link.pt"));
    fs::create_symlink(elsewhere.path(), models.folder.file("linked"));
    fs::create_symlink("inside.pt", models.folder.file("alias.pt"));
    for (const std::string& file :
         {elsewhere.file("outside.pt"), models.folder.file("inside.pt"), std::string("link.pt"),
          std::string("linked/outside.pt"),
          std::string("../" + fs::path(elsewhere.path()).filename().string() + "/outside.pt"),
          std::string("sub/../inside.pt"), std::string("./inside.pt"), std::string(), std::string("."),
          std::string("missing.pt"), std::string("native.pt2"), std::string("inside.pt\0x", 11)}) {
        INFO(file);
        CHECK(models.rejection("m", file)["parameter"] == "file");
    }
    CHECK(models.rejection("m", "sub")["parameter"] == "file");  // a folder
    CHECK_THAT(models.rejection("m", "native.pt2").at("expected").get<std::string>(), ContainsSubstring("native code"));
    models.folder.write("text.pt", "hello");
    const auto rejected = models.rejection("m", "text.pt");
    CHECK(rejected.at("got") == "text.pt is no TorchScript file: torch.jit.save makes one");
    models.folder.write("broken.pt", "PK\3\4 and nothing that follows");
    CHECK(models.rejection("m", "broken.pt").at("got").get<std::string>().find(models.folder.path()) ==
          std::string::npos);
    CHECK(models.load("a", "inside.pt"));
    CHECK(models.load("b", "sub/deep.pt"));
    CHECK(models.load("c", "alias.pt"));
    CHECK_FALSE(models.table.list().empty());
}

TEST_CASE("A file that everybody may write to is not loaded, nor one in such a folder", "[models]") {
    Table models;
    std::filesystem::create_directory(models.folder.file("sub"));
    models.write("one.pt", 1);
    models.write("sub/one.pt", 1);
    CHECK(::chmod(models.folder.file("one.pt").c_str(), 0666) == 0);
    CHECK_THAT(models.rejection("m", "one.pt").at("got").get<std::string>(), ContainsSubstring("by everybody"));
    CHECK(models.load("m", "sub/one.pt"));
    CHECK(::chmod(models.folder.file("sub").c_str(), 0777) == 0);
    CHECK_THAT(models.rejection("n", "sub/one.pt").at("got").get<std::string>(), ContainsSubstring("by everybody"));
    CHECK(::chmod(models.folder.path().c_str(), 0777) == 0);  // after the start
    CHECK(::chmod(models.folder.file("one.pt").c_str(), 0600) == 0);
    CHECK_THAT(models.rejection("n", "one.pt").at("got").get<std::string>(), ContainsSubstring("by everybody"));
    CHECK(::chmod(models.folder.path().c_str(), 0700) == 0);
    CHECK(models.load("n", "one.pt"));
}

TEST_CASE("The size of a model counts each of its tensors once, and what a sparse one holds", "[models]") {
    Table models;
    torch::jit::Module module("M");
    const at::Tensor weight = at::full({10}, 1.0, at::kFloat);
    module.register_parameter("weight", weight, false);
    module.register_parameter("tied", weight, false);
    module.register_buffer("graph", at::full({4, 4}, 1.0, at::kFloat).tril().to_sparse());
    module.define("def f(self) -> int:\n    return 1\n");
    module.save(models.folder.file("sparse.pt"));
    CHECK(models.load("m", "sparse.pt"));
    CHECK(models.run("m.f") == 1);
    const auto size = models.table.list()[0].size;
    CHECK(size.parameters == 10 + 10 + 2 * 10);  // ten values, two indices each
    CHECK(size.bytes == 40 + 40 + 160);
    CHECK_FALSE(models.table.unload("m").has_value());
    CHECK(models.functions.size() == 0);
}

TEST_CASE("A model whose names are taken or not allowed is rejected, and leaves another in its place as it is",
          "[models]") {
    Registry registry;
    registry.add("taken.f", [] { return 7; });
    registry.add("m.g", [] { return 7; });
    Table models(registry);
    models.write("one.pt", 1);
    torch::jit::Module module("M");
    module.define("def f(self) -> int:\n    return 2\ndef g(self) -> int:\n    return 2\n");
    module.save(models.folder.file("two.pt"));
    CHECK(models.rejection("taken", "one.pt", true)["got"] == "taken.f");
    for (const char* name : {"model", "a b", ""})
        CHECK(models.rejection(name, "one.pt", true)["parameter"] == "name");
    CHECK(models.table.list().empty());
    CHECK(models.functions.size() == 2);
    CHECK_THROWS_AS(models.table.load_argument("taken=" + models.folder.file("one.pt")), runtime::NameTaken);
    CHECK(models.load("m", "one.pt"));
    CHECK(models.rejection("m", "two.pt", true)["got"] == "m.g");
    CHECK(models.rejection("m", "none.pt", true)["parameter"] == "file");
    REQUIRE(models.table.list().size() == 1);
    CHECK(models.table.list()[0].file == "one.pt");
    CHECK(models.run("m.f") == 1);
    CHECK_FALSE(models.table.unload("m").has_value());
    CHECK(models.functions.size() == 2);
}

TEST_CASE("What was unloaded is gone, and a table that is closed loads nothing", "[models]") {
    Table models;
    models.write("one.pt", 1);
    CHECK(models.load("m", "one.pt"));
    const std::weak_ptr<const FunctionRecord> function = models.functions.find("m.f")->shared;
    CHECK_FALSE(models.table.unload("m").has_value());
    CHECK(function.expired());
    models.table.close();
    CHECK(models.rejection("m", "one.pt") == json_rpc::shutting_down().data);
    CHECK(models.table.unload("m") == json_rpc::shutting_down());
}

TEST_CASE("A folder of models must be there, and not be everybody's", "[models]") {
    runtime::FunctionTable functions{Registry()};
    const TemporaryFolder folder;
    const auto open = [&](const std::string& path) { ModelTable(functions, &models::load_model, {path}, 1); };
    CHECK_THROWS_WITH(open(folder.file("none")), ContainsSubstring("No such file"));
    CHECK_THROWS_WITH(open(folder.write("file", "x")), ContainsSubstring("not a folder"));
    CHECK_NOTHROW(open(folder.path()));
    CHECK(::chmod(folder.path().c_str(), 0777) == 0);
    CHECK_THROWS_WITH(open(folder.path()), ContainsSubstring("writable by everybody"));
}

TEST_CASE("Models that are loaded on request are bounded, those of the command line are not", "[models]") {
    Table models({}, 2);
    models.write("one.pt", 1);
    for (const char* name : {"x", "y", "z"})
        models.table.load_argument(std::string(name) + '=' + models.folder.file("one.pt"));
    CHECK(models.load("a", "one.pt"));
    CHECK(models.load("b", "one.pt"));
    CHECK_THAT(models.rejection("c", "one.pt").at("expected").get<std::string>(),
               ContainsSubstring("at most 2 models"));
    CHECK(models.load("a", "one.pt", true));
    CHECK_THAT(models.rejection("x", "one.pt", true).at("expected").get<std::string>(),
               ContainsSubstring("at most 2 models"));
    CHECK_FALSE(models.table.unload("b").has_value());
    CHECK(models.load("c", "one.pt"));
    CHECK_THROWS_AS(models.table.load_argument("x=" + models.folder.file("one.pt")), std::invalid_argument);
}

TEST_CASE("Two who load one model at once do not come in between", "[models]") {
    Table models;
    models.write("one.pt", 1);
    std::atomic<int> loaded{0}, unloaded{0};
    {
        std::vector<std::jthread> threads;
        for (int t = 0; t < 4; ++t) {
            threads.emplace_back([&] {
                for (int i = 0; i < 20; ++i) {
                    if (std::holds_alternative<ModelTable::Info>(models.table.load({"m", "one.pt", {}, i % 2 == 0})))
                        ++loaded;
                    if (!models.table.unload("m")) ++unloaded;
                }
            });
        }
    }
    CHECK(loaded >= unloaded);
    CHECK(models.table.list().size() == models.functions.size());  // one of each, or none
    (void)models.table.unload("m");
    CHECK(models.functions.size() == 0);
    CHECK(models.load("m", "one.pt"));
}

TEST_CASE("What is no model is rejected in one line that names model and path", "[models]") {
    const TemporaryFolder folder;
    const std::string text = folder.write("text", "hello"), empty = folder.write("empty", ""),
                      broken = folder.write("broken", "PK\3\4 and nothing that follows");
    CHECK(complaint("/no/such/file") == "model m: /no/such/file does not exist");
    CHECK(complaint("/") == "model m: / is no regular file");
    CHECK(complaint(text) == "model m: " + text + " is no TorchScript file: torch.jit.save makes one");
    CHECK(complaint(empty) == "model m: " + empty + " is no TorchScript file: torch.jit.save makes one");
    const std::string line = complaint(broken);
    CHECK(line.starts_with("model m: " + broken + " is no TorchScript file that this libtorch reads: "));
    CHECK(line.find('\n') == std::string::npos);
    CHECK_THROWS_WITH(
        model_of("def f(self, x: Dict[int, int]) -> int:\n    return 1\n"),
        ContainsSubstring(
            "has no method that can be shared (f: parameter x has the type Dict[int, int], which can't cross)"));
}

TEST_CASE("name=path names a model, with how it is loaded behind it", "[models]") {
    const auto read = [](const std::string& options) { return models::parse_model_argument("m=x" + options).options; };
    const auto plain = models::parse_model_argument("vad=/models/a=b?c.jit");  // a question mark of its own
    CHECK(plain.name == "vad");
    CHECK(plain.path == "/models/a=b?c.jit");
    CHECK(plain.options.state == State::copied);
    CHECK(read("?stateful=yes").state == State::copied);
    CHECK(read("?stateful=deep").state == State::deep);
    CHECK(read("?stateful=shared").state == State::shared);
    const auto placed = models::parse_model_argument("m=x?stateful=no&device=cuda:1&dtype=float16&grad=yes");
    CHECK(placed.path == "x");
    CHECK(placed.options.state == State::none);
    CHECK(placed.options.device == "cuda:1");
    CHECK(placed.options.dtype == "float16");
    CHECK(placed.options.grad);
    for (const std::string text : {"", "m", "=x", "m="}) {
        CHECK_THROWS_MATCHES(
            models::parse_model_argument(text), std::invalid_argument,
            Catch::Matchers::Message("model \"" + text + "\": write name=path, or name=path?stateful=deep"));
    }
    CHECK_THROWS_MATCHES(
        read("?stateful=perhaps"), std::invalid_argument,
        Catch::Matchers::Message("model \"m=x?stateful=perhaps\": stateful is yes, deep, shared or no"));
    CHECK_THROWS_AS(read("?grad=perhaps"), std::invalid_argument);
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
    options.state = State::none;
    CHECK(call(*models::load_model("m", file, options), "f") == Json({2, 8}));
}

TEST_CASE("a frozen model is not loaded with a dtype, which its weights would not get", "[models]") {
    torch::jit::Module module("M");
    module.register_parameter("weight", at::full({2}, 2.0, at::kFloat), false);
    module.define("def forward(self, x: Tensor) -> Tensor:\n    return x * self.weight\n");
    module.eval();
    const TemporaryFolder folder;
    const std::string file = folder.file("m.pt");
    torch::jit::freeze(module).save(file);
    models::LoadOptions options;
    options.device = "cpu";
    CHECK(models::load_model("m", file, options)->functions().size() == 1);
    options.dtype = "float16";
    CHECK_THROWS_WITH(models::load_model("m", file, options), ContainsSubstring("before you freeze it"));
}
