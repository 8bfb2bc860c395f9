// Readers of named tensors whose server is killed and started again by its keeper.

#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <csignal>
#include <future>
#include <optional>
#include <vector>

#include <shared_tensor/client.hpp>
#include <shared_tensor/tensors.hpp>

#include "support/daemon.hpp"
#include "support/rpc.hpp"
#include "support/tensors.hpp"

using namespace shared_tensor;
using namespace shared_tensor::test;

namespace {

/// A server under a keeper, which listens for it: its address stays.
class KeptServer {
public:
    KeptServer() { await_server(); }
    /// A keeper that is killed would leave its server.
    ~KeptServer() {
        keeper_.signal(SIGTERM);
        keeper_.wait();
    }

    std::string url() const { return text_of_file(ready_).substr(0, text_of_file(ready_).find('\n')); }
    int port() const { return std::stoi(url().substr(url().rfind(':') + 1)); }
    Json state() const { return call(port(), "server.info")["state"]; }

    /// Returns when the next server serves.
    void kill() {
        const pid_t before = server();
        std::filesystem::remove(ready_);
        ::kill(before, SIGKILL);
        REQUIRE(eventually([&] { return server() != before && server() != 0; }));
        await_server();
    }

private:
    pid_t server() const {
        const std::string pid = std::to_string(keeper_.pid());
        const std::string children = text_of_file("/proc/" + pid + "/task/" + pid + "/children");
        return children.empty() ? 0 : std::stoi(children);
    }
    void await_server() {
        if (!eventually([this] { return std::filesystem::exists(ready_); }))
            throw std::runtime_error("the server did not start: " + text_of_file(err_));
    }

    TemporaryFolder folder_;
    const std::string ready_ = folder_.file("ready"), err_ = folder_.file("err");
    Child keeper_{{kKeeper, "--listen", "127.0.0.1:0", "--", kDaemon, "--ready-file", ready_, "--older-versions", "2"},
                  {},
                  folder_.file("out"),
                  err_};
};

constexpr std::int64_t kFloats = 1 << 18;  // 1 MiB, in memory of its own

TensorRef constant(float value) { return tensor_of(std::vector<float>(kFloats, value)); }

float first_of(const TensorRef& tensor) { return *reinterpret_cast<const float*>(tensor.data()); }

using Weights = std::map<std::string, TensorRef>;

}  // namespace

TEST_CASE("readers of a set read on while its server is killed, and go on with the next server", "[keeper]") {
    KeptServer server;
    const NamedTensors names(Client(server.url()));
    REQUIRE(names.put("weights", Weights{{"a", constant(1)}, {"b", constant(2)}}).version == 1);
    std::vector<Client> clients;
    std::vector<NamedTensor> read;
    for (int i = 0; i < 8; ++i) {
        clients.emplace_back(server.url());
        read.push_back(NamedTensors(clients.back()).get("weights"));
    }
    std::atomic<bool> stopped{false};
    auto wrong = std::async(std::launch::async, [&] {
        int count = 0;
        while (!stopped)
            for (const NamedTensor& one : read)
                count += first_of(one["a"]) == 1 && first_of(one["b"]) == 2 ? 0 : 1;
        return count;
    });
    auto next = std::async(std::launch::async,
                           [&] { return NamedTensors(clients.front()).watch("weights", 1, std::chrono::minutes(1)); });
    for (int i = 0; i < 3; ++i)
        server.kill();
    for (std::size_t i = 0; i < read.size(); ++i) {
        const NamedTensor again = NamedTensors(clients[i]).get("weights", read[i]);
        CHECK(again.version() == 1);
        CHECK(again["b"].data() == read[i]["b"].data());  // the block has its id, so nothing is mapped anew
        CHECK(first_of(NamedTensors(clients[i]).get("weights")["b"]) == 2);
    }
    REQUIRE(names.put("weights", Weights{{"b", constant(3)}}, {.base = 1}).version == 2);
    CHECK(next.get() == std::optional<std::uint64_t>(2));
    const NamedTensor newer = NamedTensors(clients[1]).get("weights", read[1]);
    CHECK(newer["a"].data() == read[1]["a"].data());
    CHECK(first_of(newer["b"]) == 3);
    server.kill();
    CHECK(first_of(names.get("weights")["a"]) == 1);
    CHECK(first_of(names.get("weights")["b"]) == 3);
    CHECK(server.state()["descriptors"] == 3);  // the records, and two blocks
    stopped = true;
    CHECK(wrong.get() == 0);
}

TEST_CASE("published memory of a client outlives the server without a copy", "[keeper]") {
    KeptServer server;
    const Client client(server.url());
    const NamedTensors names(client);
    auto set = names.empty_set({{"a", {DType::float32, {kFloats}}}, {"b", {DType::float32, {kFloats}}}});
    std::fill_n(reinterpret_cast<float*>(set["b"].mutable_data()), kFloats, 5.0F);
    REQUIRE(names.put("born", set).copied == 0);
    server.kill();
    CHECK(first_of(names.get("born")["b"]) == 5);
    REQUIRE(names.put("born", Weights{{"a", constant(7)}}, {.base = 1}).version == 2);
    server.kill();
    CHECK(first_of(names.get("born")["a"]) == 7);
    CHECK(first_of(names.get("born")["b"]) == 5);
}
