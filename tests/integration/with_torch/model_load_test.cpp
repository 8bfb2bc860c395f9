// Models that come and go while the daemon runs.

#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/jit/api/module.h>

#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <csignal>
#include <exception>
#include <future>
#include <thread>

#include <shared_tensor/client.hpp>
#include <shared_tensor/json.hpp>
#include <shared_tensor/object.hpp>
#include <shared_tensor/tensors.hpp>
#include <shared_tensor/torch.hpp>

#include "integration/server/shared_daemon.hpp"
#include "support/daemon.hpp"
#include "support/rpc.hpp"

using namespace shared_tensor;
using namespace shared_tensor::test;
using Catch::Matchers::ContainsSubstring;

namespace {

/// forward(x) is x * factor; count_to(n) takes its time, and is n * factor; next() counts.
void write_model(const std::string& path, int factor) {
    torch::jit::Module module("M");
    module.register_parameter("weight", at::full({1}, factor, at::kFloat), false);
    module.register_attribute("calls", c10::IntType::get(), 0);
    module.define(
        "def forward(self, x: Tensor) -> Tensor:\n    return x * self.weight\n"
        "def count_to(self, n: int) -> int:\n    i = 0\n    while i < n:\n        i = i + 1\n    return i * " +
        std::to_string(factor) +
        "\n"
        "def next(self) -> int:\n    self.calls = self.calls + 1\n    return self.calls\n");
    module.save(path);
}

constexpr int kLong = 40'000'000;

struct ModelDaemon {
    explicit ModelDaemon(const Words& options = {}) : daemon(joined({"--model-folder", folder.path()}, options)) {
        write_model(folder.file("twice.pt"), 2);
        write_model(folder.file("thrice.pt"), 3);
    }
    Client client() const { return Client(daemon.url()); }
    Json load(const std::string& name, const std::string& file, bool replace = false) const {
        return respond(daemon.port(), "model.load", {{"name", name}, {"file", file}, {"replace", replace}});
    }
    int busy() const { return call(daemon.port(), "server.info")["totals"]["workers"]["busy"]; }
    bool becomes_busy(int workers) const {
        return eventually([&] { return busy() == workers; });
    }
    /// A call that takes its time.
    std::future<Json> start_slow() const {
        return std::async(std::launch::async,
                          [this] { return respond(daemon.port(), "m.count_to", Json::array({kLong})); });
    }

    TemporaryFolder folder;
    Daemon daemon;
};

std::vector<std::string> discovered(int port) {
    std::vector<std::string> names;
    const Json document = call(port, "rpc.discover");
    for (const Json& method : document["methods"]) {
        if (!method.contains("x-builtin")) names.push_back(method["name"]);
    }
    HttpPeer peer(port);
    peer.request("GET", "/openrpc.json", "", {});
    CHECK(Json::parse(peer.read().body)["methods"].size() == document["methods"].size());
    return names;
}

}  // namespace

TEST_CASE("a model is loaded, called and unloaded while the daemon runs", "[models]") {
    const ModelDaemon server;
    const int port = server.daemon.port();
    CHECK(discovered(port).empty());
    const Json loaded = server.load("m", "twice.pt")["result"];
    CHECK(loaded["name"] == "m");
    CHECK(loaded["file"] == "twice.pt");
    CHECK(loaded["functions"] == Json({"m.forward", "m.count_to", "m.next"}));
    CHECK(loaded["stateful"] == "yes");
    CHECK(loaded["device"] == "cpu");
    CHECK(loaded["parameters"] == 1);
    CHECK(loaded["bytes"] == 4);
    CHECK(discovered(port) == std::vector<std::string>{"m.count_to", "m.forward", "m.next"});
    CHECK(call(port, "server.info")["functions"] == 3);
    const at::Tensor x = at::arange(100'000, at::kFloat);
    CHECK(at::equal(server.client().call<at::Tensor>("m.forward", x), x.mul(2)));
    CHECK(call(port, "model.list")["models"][0]["name"] == "m");
    CHECK(call(port, "model.unload", {{"name", "m"}}) == Json({{"unloaded", "m"}}));
    CHECK(call_code(port, "m.next") == -32601);
    CHECK(call_code(port, "model.unload", {{"name", "m"}}) == -32602);
    CHECK(call(port, "model.list")["models"].empty());
    CHECK(discovered(port).empty());
    CHECK(server.load("m", "twice.pt").contains("result"));
}

TEST_CASE("a model is loaded with a dtype, without state, and in the place of another one", "[models]") {
    const ModelDaemon server;
    const int port = server.daemon.port();
    const Client client = server.client();
    const at::Tensor x = at::arange(10, at::kFloat);
    CHECK(call(port, "model.load",
               {{"name", "m"}, {"file", "twice.pt"}, {"stateful", "no"}, {"dtype", "float64"}})["dtype"] == "float64");
    CHECK(client.call<at::Tensor>("m.forward", x).scalar_type() == at::kDouble);
    const Json rejected = server.load("m", "thrice.pt");
    CHECK(rejected["error"]["code"] == -32602);
    CHECK(rejected["error"]["data"]["parameter"] == "name");
    CHECK(server.load("m", "thrice.pt", true).contains("result"));
    CHECK(at::equal(client.call<at::Tensor>("m.forward", x), x.mul(3)));
    for (const Json& wrong : {Json{{"stateful", "perhaps"}}, Json{{"dtype", "int3"}}, Json{{"dtype", "int32"}},
                              Json{{"device", "cuda:99"}}, Json{{"device", "cuda:1x"}}, Json{{"device", "tpu"}},
                              Json{{"grad", "yes"}}, Json{{"file", "../twice.pt"}}, Json{{"file", nullptr}}}) {
        Json params{{"name", "other"}, {"file", "twice.pt"}};
        params.update(wrong);
        const Json answer = respond(port, "model.load", params);
        INFO(params << answer);
        CHECK(code_of(answer) == -32602);
        CHECK(answer.dump().find(server.folder.path()) == std::string::npos);
    }
    CHECK(call(port, "model.list")["models"].size() == 1);
}

TEST_CASE("calls of a model without state are joined", "[models]") {
    const ModelDaemon server;
    const int port = server.daemon.port();
    const Client client = server.client();
    Json params{{"name", "m"}, {"file", "twice.pt"}, {"batch", 4}, {"batch_wait_ms", 10'000}};
    const Json rejected = respond(port, "model.load", params);
    CHECK(rejected["error"]["data"]["parameter"] == "batch");
    params["stateful"] = "no";
    CHECK(call(port, "model.load", params)["batch"] == 4);
    const auto twice = [&](float number) {
        return std::async(std::launch::async, [&client, number] {
            return client.call<at::Tensor>("m.forward", at::full({2, 3}, number, at::kFloat));
        });
    };
    auto one = twice(1), other = twice(2);  // four rows: the batch is full, and nothing waits for 10 s
    CHECK(at::equal(one.get(), at::full({2, 3}, 2, at::kFloat)));
    CHECK(at::equal(other.get(), at::full({2, 3}, 4, at::kFloat)));
    CHECK(call(port, "server.info")["totals"]["functions"]["m.forward"]["batches"] ==
          Json({{"runs", 1}, {"calls", 2}}));
    CHECK(call(port, "m.next") == 1);
    params.update({{"replace", true}, {"batch_wait_ms", 10'001}});
    const Json too_long = respond(port, "model.load", params);
    CHECK_THAT(too_long["error"]["data"]["got"].get<std::string>(), ContainsSubstring("at most 10 s"));
}

TEST_CASE("calls that run while their model goes end on it", "[models]") {
    const ModelDaemon server;
    const int port = server.daemon.port();
    CHECK(server.load("m", "twice.pt").contains("result"));
    auto on_replaced = server.start_slow();
    CHECK(server.becomes_busy(1));
    CHECK(server.load("m", "thrice.pt", true).contains("result"));
    CHECK(server.busy() == 1);
    CHECK(call(port, "m.count_to", Json::array({1})) == 3);
    CHECK(on_replaced.get()["result"] == kLong * 2);
    CHECK(server.becomes_busy(0));
    auto on_unloaded = server.start_slow();
    CHECK(server.becomes_busy(1));
    CHECK(call(port, "model.unload", {{"name", "m"}}).is_object());
    CHECK(server.busy() == 1);
    CHECK(call_code(port, "m.count_to", Json::array({1})) == -32601);
    CHECK(on_unloaded.get()["result"] == kLong * 3);
}

TEST_CASE("sessions and instances of a model that goes begin anew, or end", "[models]") {
    const ModelDaemon server;
    const int port = server.daemon.port();
    CHECK(server.load("m", "twice.pt").contains("result"));
    const Client client = server.client();
    const Client session = client.new_session();
    CHECK(session.call<int>("m.next") == 1);
    CHECK(session.call<int>("m.next") == 2);
    CHECK(call(port, "model.list")["models"][0]["sessions"] == 1);
    const auto instance = client.call<Object>("model.create", "m");
    CHECK(client.call<int>("m.next", instance) == 1);
    CHECK(server.load("m", "thrice.pt", true).contains("result"));
    CHECK(session.call<int>("m.next") == 1);
    CHECK_THROWS_AS(client.call<int>("m.next", instance), InvalidParams);
    CHECK_THROWS_WITH(client.call<int>("m.next", instance), ContainsSubstring("model.create"));
    CHECK_THROWS_AS(client.call<Object>("model.create", "none"), InvalidParams);
    CHECK(client.call<int>("m.next", client.call<Object>("model.create", "m")) == 1);
}

TEST_CASE("only an admin loads models, and only where the operator allowed it", "[models]") {
    const TokenFile file(token("ann") + token("root", ":admin"));
    const ModelDaemon server({"--token-file", file.tokens});
    const int port = server.daemon.port();
    const auto as = [](const std::string& name) { return bearer(name[0]); };
    const Json params{{"name", "m"}, {"file", "twice.pt"}};
    CHECK(call_code(port, "model.load", params, as("ann")) == -32007);
    CHECK(call_code(port, "model.load", params, as("root")) == 0);
    CHECK(call_code(port, "model.unload", {{"name", "m"}}, as("ann")) == -32007);
    CHECK(call(port, "m.next", nullptr, as("ann")) == 1);
    CHECK(call(port, "model.list", nullptr, as("ann"))["models"].size() == 1);
    const Daemon closed({"--model", "m=" + server.folder.path() + "/twice.pt"});
    const Json rejected = respond(closed.port(), "model.load", params);
    CHECK(code_of(rejected) == -32007);
    CHECK_THAT(rejected.dump(), ContainsSubstring("--model-folder"));
    CHECK(call_code(closed.port(), "model.unload", {{"name", "m"}}) == -32007);
    CHECK(call(closed.port(), "m.next") == 1);
    CHECK_FALSE(call(closed.port(), "model.list")["models"][0].contains("file"));
}

TEST_CASE("a daemon that ends loads no more models", "[models]") {
    ModelDaemon server({"--drain-time", "120s", "--timeout", "120s"});
    const int port = server.daemon.port();
    CHECK(server.load("m", "twice.pt").contains("result"));
    auto slow = server.start_slow();
    CHECK(server.becomes_busy(1));
    HttpPeer peer(port);  // connected before
    server.daemon.child().signal(SIGTERM);
    const auto rejected = [&] {
        const std::string params = call_object("model.load", {{"name", "n"}, {"file", "twice.pt"}}).dump();
        peer.request("POST", "/jsonrpc", params, {{"Content-Type", "application/json"}});
        return code_of(Json::parse(peer.read().body)) == -32009;
    };
    CHECK(eventually(rejected));
    CHECK(slow.get().contains("result"));
}

TEST_CASE("a daemon ends in the middle of loading models", "[models]") {
    ModelDaemon server;
    constexpr int kLoaders = 3;
    for (int i = 0; i < kLoaders; ++i) {  // takes long enough for one to be under way
        torch::jit::Module module("M");
        module.register_parameter("weight", at::zeros({std::int64_t{4} << 20}, at::kFloat), false);
        module.define("def forward(self) -> int:\n    return 1\n");
        module.save(server.folder.file("large" + std::to_string(i) + ".pt"));
    }
    std::atomic<int> loaded{0}, rejected{0}, wrong{0};
    std::atomic<bool> is_over{false};
    int before = 0;
    {
        std::vector<std::jthread> loaders;
        for (int i = 0; i < kLoaders; ++i) {
            loaders.emplace_back([&, name = "large" + std::to_string(i)] {
                try {
                    while (!is_over) {
                        const int code = code_of(server.load(name, name + ".pt", true));
                        if (is_over) return;  // whoever has the port now
                        if (code == 0) {
                            ++loaded;
                        } else {
                            ++(code == -32009 ? rejected : wrong);
                        }
                    }
                } catch (const std::exception&) {  // it listens no more
                }
            });
        }
        CHECK(eventually([&] { return loaded >= 2 * kLoaders; }));
        before = loaded + rejected;
        CHECK(server.daemon.stop() == 0);
        is_over = true;
    }
    INFO(loaded << " loaded, " << rejected << " rejected");
    CHECK(loaded + rejected > before);  // those under way were answered
    CHECK(wrong == 0);
    CHECK_THAT(server.daemon.log(), !ContainsSubstring("did not end in time"));
}

TEST_CASE("SIGTERM ends the daemon though a model.load does not end", "[models]") {
    ModelDaemon server({"--drain-time", "200ms"});
    torch::jit::Module endless("M");
    endless.define(
        "def __getstate__(self) -> int:\n    return 0\n"
        "def __setstate__(self, state: int):\n    while state >= 0:\n        state = state + 1\n");
    endless.save(server.folder.file("endless.pt"));
    HttpPeer loading(server.daemon.port());
    loading.request("POST", "/jsonrpc", call_object("model.load", {{"name", "m"}, {"file", "endless.pt"}}).dump());
    REQUIRE(eventually([&] {  // busy: that load has begun
        return call_code(server.daemon.port(), "model.unload", {{"name", "m"}}) == -32001;
    }));
    CHECK(server.daemon.stop() == 0);
    CHECK_THAT(server.daemon.log(), ContainsSubstring("did not end in time"));
}

TEST_CASE("instances of sessions that ended while their call waited are not kept", "[models]") {
    const ModelDaemon server({"--workers", "4"});
    const int port = server.daemon.port();
    CHECK(server.load("m", "twice.pt").contains("result"));
    for (int round = 0; round < 3; ++round) {
        const Json session = call(port, "session.open")["session"];
        const HeaderList in_session{{"Shared-Tensor-Session", session.get<std::string>()}};
        const Json slow{{"method", "m.count_to"}, {"params", {kLong / 2}}};
        const Json first = call(port, "task.submit", slow, in_session);
        const Json second = call(port, "task.submit", {{"method", "m.next"}}, in_session);
        CHECK(call(port, "session.close", nullptr, in_session).is_object());
        CHECK(call(port, "task.wait", {{"id", second["id"]}, {"timeout_ms", 20'000}})["state"] == "completed");
        CHECK(eventually([&] { return call(port, "model.list")["models"][0]["sessions"] == 0; }));
    }
}

TEST_CASE("a model of the command line is trusted as little as one that is loaded", "[models]") {
    TemporaryFolder folder;
    const std::string path = folder.file("m.pt");
    write_model(path, 2);
    const Words words{"--port", "0", "--model", "m=" + path};
    const auto rejection = [&] {
        const Ended ended = run_daemon(words);
        CHECK(ended.code == 1);
        return ended.err;
    };
    REQUIRE(::chmod(path.c_str(), 0666) == 0);
    CHECK_THAT(rejection(), ContainsSubstring(path + " may be written to by everybody"));
    REQUIRE(::chmod(path.c_str(), 0600) == 0);
    REQUIRE(::chmod(folder.path().c_str(), 0777) == 0);
    CHECK_THAT(rejection(), ContainsSubstring("by everybody"));
    const Ended folder_rejected = run_daemon({"--port", "0", "--model-folder", folder.file("none")});
    CHECK(folder_rejected.code == 1);
    CHECK_THAT(folder_rejected.err, ContainsSubstring("model folder"));
    REQUIRE(::chmod(folder.path().c_str(), 01777) == 0);  // as /tmp is: nobody replaces another's file there
    const Daemon daemon(Words{"--model", "m=" + path});
    CHECK(call(daemon.port(), "m.next") == 1);
}

TEST_CASE("a model that this libtorch does not read is rejected with the reason", "[models]") {
    TemporaryFolder folder;
    const std::string path = folder.file("m.pt");
    torch::jit::Module module("M");
    module.define("def forward(self, x: Tensor) -> Tensor:\n    return torch.relu(x)\n");
    module.save(path);
    std::string bytes = text_of_file(path);
    const std::size_t at = bytes.find("torch.relu");
    REQUIRE(at != std::string::npos);
    folder.write("m.pt", bytes.replace(at, 10, "torch.rulu"));
    const Ended ended = run_daemon({"--port", "0", "--model", "m=" + path});
    CHECK(ended.code == 1);
    CHECK_THAT(ended.err, ContainsSubstring("is no TorchScript file that this libtorch reads: Unknown builtin op"));
}

TEST_CASE("a model is replaced again and again while it is called", "[models]") {
    const ModelDaemon server;
    const int port = server.daemon.port();
    CHECK(server.load("m", "twice.pt").contains("result"));
    std::atomic<int> calls{0}, wrong{0};
    {
        std::vector<std::jthread> callers;
        for (int t = 0; t < 3; ++t) {
            callers.emplace_back([&](const std::stop_token& stop) {
                const Client client = server.client();
                while (!stop.stop_requested()) {
                    const int result = client.call<int>("m.count_to", 10);
                    ++calls;
                    if (result != 20 && result != 30) ++wrong;
                }
            });
        }
        for (int i = 0; i < 30 || (calls < 100 && i < 3000); ++i)
            CHECK(server.load("m", i % 2 == 0 ? "thrice.pt" : "twice.pt", true).contains("result"));
    }
    CHECK(calls >= 100);
    CHECK(wrong == 0);
    CHECK(call(port, "model.list")["models"].size() == 1);
}
