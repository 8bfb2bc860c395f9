// The simulated devices as users' tests have them: the daemon loads the plugin, the test program is linked to the
// library.

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>

#include <catch2/catch_test_macros.hpp>

#include <shared_tensor/client.hpp>
#include <shared_tensor/json.hpp>
#include <shared_tensor/simulated.hpp>
#include <shared_tensor/torch.hpp>

#include "support/daemon.hpp"
#include "support/rpc.hpp"

using namespace shared_tensor;
using namespace shared_tensor::test;

namespace {

struct SimulatedServer {
    explicit SimulatedServer(const Words& variables = {})
        : daemon({"--load", kSimulatedPlugin, "--load", kExamplePlugin}, variables),
          client("http://127.0.0.1:" + std::to_string(daemon.port())) {}

    Json info() const { return call(daemon.port(), "server.info"); }
    Json statistics() const { return call(daemon.port(), "simulated.statistics"); }

    const Daemon daemon;
    const Client client;
};

}  // namespace

TEST_CASE("A daemon that loads the plugin has as many simulated devices as the environment says", "[simulated]") {
    const SimulatedServer one, three({"SHARED_TENSOR_SIMULATED_DEVICES=3"});
    CHECK(one.info()["devices"].size() == 1);
    CHECK(three.info()["devices"].size() == 3);
    CHECK(three.info()["devices"][2]["uuid"] == simulated::uuid(2));
    CHECK(three.info()["transports"]["cuda_ipc"]["usable"] == true);
    const Daemon without({"--load", kExamplePlugin}, {"SHARED_TENSOR_SIMULATED_DEVICES=3"});
    CHECK(call(without.port(), "server.info")["devices"].empty());
}

TEST_CASE("Tensors on simulated devices go both ways between a daemon and a test program", "[simulated]") {
    simulated::enable(1);
    const SimulatedServer server;
    const Client fast = server.client.with({.require = "cuda_ipc"});
    const at::Tensor x = at::arange(4'000, at::kFloat);  // each order of adding them has the same sum
    {
        const at::Tensor result =
            server.client.with({.require = "cuda_ipc, shm"}).call<at::Tensor>("simulated.to_device", x);
        CHECK(simulated::on_device(result));
        CHECK(at::equal(result, x));
        const at::Tensor there = simulated::to_device(x);
        CHECK(fast.call<double>("slow_sum", there, 0.0) == x.sum().item<double>());
        CHECK(server.statistics()["opened"] == 1);
    }
    CHECK(eventually([&] { return server.statistics()["allocations"] == 0 && server.statistics()["open"] == 0; }));
    for (const char* undefined : {"freed_while_open", "opened_twice", "closed_twice"})
        CHECK(server.statistics()[undefined] == 0);
    CHECK(simulated::statistics().freed_while_open == 0);
}

TEST_CASE("Faults of the daemon's simulated devices can be asked for by a call", "[simulated]") {
    simulated::enable(1);
    const SimulatedServer server;
    const at::Tensor x = at::arange(100'000, at::kFloat);
    server.client.call<void>("simulated.inject", "reject_export");
    CHECK_FALSE(simulated::on_device(server.client.call<at::Tensor>("simulated.to_device", x)));
    server.client.call<void>("simulated.inject", "");
    CHECK(simulated::on_device(server.client.call<at::Tensor>("simulated.to_device", x)));
    CHECK_THROWS_AS(server.client.call<void>("simulated.inject", "burn"), FunctionFailed);
}
