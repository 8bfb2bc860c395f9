#include "runtime/models/model_table.hpp"
#include "torch/load_model.hpp"

#include <ATen/ops/full.h>
#include <torch/csrc/jit/api/module.h>

#include <sys/stat.h>

#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <filesystem>
#include <shared_tensor/torch.hpp>
#include <thread>

#include "call.hpp"

using namespace shared_tensor;
using namespace shared_tensor::test;
using Catch::Matchers::ContainsSubstring;
using codec::Json;
using models::ModelTable;

namespace {

/// A model whose f() is `result`, with a parameter of three numbers.
void write_model(const std::string& path, int result) {
    torch::jit::Module module("M");
    module.register_parameter("weight", at::full({3}, 1.0, at::kFloat), false);
    module.define("def f(self) -> int:\n    return " + std::to_string(result) + "\n");
    module.save(path);
}

constexpr const char* kCounter = "def next(self) -> int:\n    self.count = self.count + 1\n    return self.count\n";

void write_counter(const std::string& path) {
    torch::jit::Module module("M");
    module.register_attribute("count", c10::IntType::get(), 0);
    module.define(kCounter);
    module.save(path);
}

struct Table {
    explicit Table(std::size_t most = 10) : table(functions, &models::load_model, {folder.path()}, most) {}

    std::string parameter_rejected(const std::string& name, const std::string& file, bool replace = false) {
        return rejection(name, file, replace).parameter;
    }
    models::Rejection rejection(const std::string& name, const std::string& file, bool replace = false) {
        const auto loaded = table.load({name, file, {}, replace});
        const auto* rejected = std::get_if<models::Rejection>(&loaded);
        return rejected != nullptr ? *rejected : models::Rejection{};
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
    runtime::FunctionTable functions{Registry()};
    ModelTable table;
};

}  // namespace

TEST_CASE("A model is not loaded for a device or a dtype that there is not", "[models]") {
    Table models;
    models.write("one.pt", 1);
    const auto fault = [&](models::LoadOptions options) {
        const auto loaded = models.table.load({"m", "one.pt", std::move(options), false});
        return std::get<models::Rejection>(loaded).got;
    };
    CHECK(fault({.device = "cuda:77"}).find("cuda:77") != std::string::npos);
    CHECK(fault({.device = "tpu"}).find("is not cpu, cuda or cuda:N") != std::string::npos);
    CHECK(fault({.device = "cuda:1x"}).find("is not cpu, cuda or cuda:N") != std::string::npos);
    CHECK(fault({.dtype = "int32"}).find("floating-point") != std::string::npos);
}

TEST_CASE("Only files below the folders are loaded, and nobody is told where these are", "[models]") {
    Table models;
    models.write("inside.pt", 1);
    const TemporaryFolder elsewhere;
    write_model(elsewhere.file("outside.pt"), 2);
    namespace fs = std::filesystem;
    fs::create_directory(models.folder.file("sub"));
    models.write("sub/deep.pt", 3);
    fs::create_symlink(elsewhere.file("outside.pt"), models.folder.file("link.pt"));
    fs::create_symlink(elsewhere.path(), models.folder.file("linked"));
    fs::create_symlink("inside.pt", models.folder.file("alias.pt"));
    for (const std::string& file : {elsewhere.file("outside.pt"), models.folder.file("inside.pt"),
                                    std::string("link.pt"), std::string("linked/outside.pt"),
                                    std::string("../" + fs::path(elsewhere.path()).filename().string() + "/outside.pt"),
                                    std::string("sub/../inside.pt"), std::string("./inside.pt"), std::string(),
                                    std::string("."), std::string("missing.pt"), std::string("inside.pt\0x", 11)}) {
        INFO(file);
        CHECK(models.parameter_rejected("m", file) == "file");
    }
    CHECK(models.parameter_rejected("m", "sub") == "file");  // a folder
    models.folder.write("text.pt", "hello");
    const auto rejected = models.rejection("m", "text.pt");
    CHECK(rejected.got == "text.pt is no TorchScript file: torch.jit.save makes one");
    models.folder.write("broken.pt", "PK\3\4 and nothing that follows");
    CHECK(models.rejection("m", "broken.pt").got.find(models.folder.path()) == std::string::npos);
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
    CHECK_THAT(models.rejection("m", "one.pt").got, ContainsSubstring("by everybody"));
    CHECK(models.load("m", "sub/one.pt"));
    CHECK(::chmod(models.folder.file("sub").c_str(), 0777) == 0);
    CHECK_THAT(models.rejection("n", "sub/one.pt").got, ContainsSubstring("by everybody"));
    CHECK(::chmod(models.folder.path().c_str(), 0777) == 0);  // after the start
    CHECK(::chmod(models.folder.file("one.pt").c_str(), 0600) == 0);
    CHECK_THAT(models.rejection("n", "one.pt").got, ContainsSubstring("by everybody"));
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

TEST_CASE("A model that cannot take another's place leaves that one as it is", "[models]") {
    Registry registry;
    registry.add("m.g", [] { return 7; });
    runtime::FunctionTable functions(registry);
    const TemporaryFolder folder;
    write_model(folder.file("one.pt"), 1);
    torch::jit::Module module("M");
    module.define("def f(self) -> int:\n    return 2\ndef g(self) -> int:\n    return 2\n");
    module.save(folder.file("two.pt"));
    ModelTable table(functions, &models::load_model, {folder.path()}, 10);
    CHECK(std::holds_alternative<ModelTable::Info>(table.load({"m", "one.pt", {}, false})));
    CHECK(std::get<models::Rejection>(table.load({"m", "two.pt", {}, true})).got == "m.g");
    CHECK(std::get<models::Rejection>(table.load({"m", "none.pt", {}, true})).parameter == "file");
    REQUIRE(table.list().size() == 1);
    CHECK(table.list()[0].file == "one.pt");
    CHECK(std::get<Json>(try_call(*functions.find("m.f")->shared, Json::array())) == 1);
    CHECK_FALSE(table.unload("m").has_value());
    CHECK(functions.size() == 1);
}

TEST_CASE("What was unloaded is gone, and a table that is closed loads nothing", "[models]") {
    Table models;
    models.write("one.pt", 1);
    CHECK(models.load("m", "one.pt"));
    const std::weak_ptr<const FunctionRecord> function = models.functions.find("m.f")->shared;
    CHECK_FALSE(models.table.unload("m").has_value());
    CHECK(function.expired());
    models.table.close();
    using Kind = models::Rejection::Kind;
    CHECK(models.rejection("m", "one.pt").kind == Kind::closed);
    CHECK(models.table.unload("m")->kind == Kind::closed);
}

TEST_CASE("A folder of models must be there, and not be everybody's", "[models]") {
    runtime::FunctionTable functions{Registry()};
    const TemporaryFolder folder;
    const auto complaint = [&](const std::string& path) {
        try {
            const ModelTable table(functions, &models::load_model, {path}, 1);
        } catch (const std::invalid_argument& error) {
            return std::string(error.what());
        }
        return std::string();
    };
    CHECK_THAT(complaint(folder.file("none")), ContainsSubstring("No such file"));
    CHECK_THAT(complaint(folder.write("file", "x")), ContainsSubstring("not a folder"));
    CHECK(complaint(folder.path()).empty());
    CHECK(::chmod(folder.path().c_str(), 0777) == 0);
    CHECK_THAT(complaint(folder.path()), ContainsSubstring("writable by everybody"));
}

TEST_CASE("Models that are loaded on request are bounded, those of the command line are not", "[models]") {
    Table models(2);
    models.write("one.pt", 1);
    for (const char* name : {"x", "y", "z"})
        models.table.load_argument(std::string(name) + '=' + models.folder.file("one.pt"));
    CHECK(models.load("a", "one.pt"));
    CHECK(models.load("b", "one.pt"));
    CHECK_THAT(models.rejection("c", "one.pt").expected, ContainsSubstring("at most 2 models"));
    CHECK(models.load("a", "one.pt", true));
    CHECK_THAT(models.rejection("x", "one.pt", true).expected, ContainsSubstring("at most 2 models"));
    CHECK_FALSE(models.table.unload("b").has_value());
    CHECK(models.load("c", "one.pt"));
    CHECK_THROWS_AS(models.table.load_argument("x=" + models.folder.file("one.pt")), std::invalid_argument);
}

TEST_CASE("A model whose names are taken or not allowed is rejected", "[models]") {
    Registry registry;
    registry.add("m.f", [] { return 7; });
    runtime::FunctionTable functions(registry);
    const TemporaryFolder folder;
    write_model(folder.file("one.pt"), 1);
    ModelTable table(functions, &models::load_model, {folder.path()}, 10);
    const auto rejected = [&](const std::string& name) {
        return std::get<models::Rejection>(table.load({name, "one.pt", {}, true}));
    };
    CHECK(rejected("m").got == "m.f");
    CHECK(rejected("model").parameter == "name");
    CHECK(rejected("a b").parameter == "name");
    CHECK(rejected("").parameter == "name");
    CHECK(table.list().empty());
    CHECK(functions.size() == 1);
    CHECK_THROWS_AS(table.load_argument("m=" + folder.file("one.pt")), runtime::NameTaken);
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

TEST_CASE("No instance is kept for a session that is not open any more", "[models]") {
    const TemporaryFolder folder;
    write_counter(folder.file("counter.pt"));
    runtime::FunctionTable functions{Registry()};
    ModelTable table(functions, &models::load_model, {folder.path()}, 10,
                     [](const std::string& session) { return session == "s-open"; });
    CHECK(std::holds_alternative<ModelTable::Info>(table.load({"c", "counter.pt", {}, false})));
    const auto next = [&](const char* session) {
        return std::get<Json>(try_call(*functions.find("c.next")->shared, Json::array(), session));
    };
    CHECK(next("s-open") == 1);
    CHECK(next("s-open") == 2);
    CHECK(next("s-over") == 1);
    CHECK(next("s-over") == 1);
    CHECK(table.list()[0].sessions == 1);
}
