// Tensors as arguments and results.

#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/zeros.h>

#include <catch2/catch_test_macros.hpp>
#include <optional>

#include <shared_tensor/client.hpp>
#include <shared_tensor/codecs.hpp>
#include <shared_tensor/json.hpp>
#include <shared_tensor/server.hpp>
#include <shared_tensor/share.hpp>
#include <shared_tensor/simulated.hpp>
#include <shared_tensor/stream.hpp>
#include <shared_tensor/tensors.hpp>
#include <shared_tensor/torch.hpp>

#include "example_daemon.hpp"

using namespace shared_tensor::test;
using namespace shared_tensor;

TEST_CASE("A tensor goes to a function and its result comes back", "[client]") {
    const ExampleDaemon server;
    const at::Tensor x = at::arange(6, at::kFloat).view({2, 3});
    const auto y = server.client().call<at::Tensor>("scale", named("x", x), named("factor", 3.0));
    CHECK(at::equal(y, at::mul(x, 3.0)));
}

TEST_CASE("Strided, empty and zero-dimensional tensors come through", "[client]") {
    const ExampleDaemon server;
    const Client client = server.client();
    const at::Tensor strided = at::arange(12, at::kDouble).view({3, 4}).t();
    CHECK(at::equal(client.call<at::Tensor>("scale", strided, 1.0), strided));
    CHECK(client.call<at::Tensor>("scale", at::zeros({0, 3}), 1.0).sizes() == at::IntArrayRef({0, 3}));
    CHECK(client.call<at::Tensor>("scale", at::arange(1, at::kFloat)[0], 1.0).dim() == 0);
}

TEST_CASE("A big tensor crosses whole", "[client]") {
    const ExampleDaemon server;
    const at::Tensor x = at::arange(8 << 20, at::kFloat);
    CHECK(at::equal(server.client().call<at::Tensor>("scale", x, 1.0), x));
}

TEST_CASE("Tensors cross in a batch", "[client]") {
    const ExampleDaemon server;
    Batch batch = server.client().batch();
    const at::Tensor x = at::arange(4, at::kFloat);
    const auto a = batch.add<at::Tensor>("scale", x, 2.0);
    const auto b = batch.add<at::Tensor>("scale", x, 3.0);
    batch.send();
    CHECK(at::equal(a.get(), at::mul(x, 2)));
    CHECK(at::equal(b.get(), at::mul(x, 3)));
}

TEST_CASE("A task gives its tensor as often as it is asked", "[client]") {
    const ExampleDaemon server;
    const at::Tensor x = at::arange(4, at::kFloat);
    const auto task = server.client().submit<at::Tensor>("scale", x, 2.0);
    CHECK(at::equal(task.get(), at::mul(x, 2)));
    CHECK(at::equal(task.get(), at::mul(x, 2)));
}

namespace {

Registry functions() {
    Registry registry;
    registry.add("none", [] { return TensorRef(); });
    registry.add("none_of_torch", [] { return at::Tensor(); });
    registry.add("some_of_none", [] { return std::optional<TensorRef>(); });
    registry.add(
        "elements", [](const TensorRef& x) { return x.elements(); }, arg("x"));
    registry.add(
        "stream_of_none", [](Writer<TensorRef> out) { out.write(TensorRef()); }, arg("out"));
    registry.add(
        "take", [](Reader<TensorRef> in) { return in.next().has_value(); }, arg("in"));
    return registry;
}

ServerOptions any_port() {
    ServerOptions options;
    options.port = 0;
    return options;
}

}  // namespace

TEST_CASE("A tensor that is none is an error as a result, an argument, an item and under a name", "[client]") {
    Server server(functions(), any_port());
    server.start();
    ClientOptions far;
    far.url = server.url();
    far.local_socket = "none";
    for (const Client& client : {Client(server.url()), Client(far)}) {
        CHECK_THROWS_AS(client.call<TensorRef>("none"), RpcError);
        CHECK_THROWS_AS(client.call<at::Tensor>("none_of_torch"), RpcError);
        CHECK(client.call<std::optional<TensorRef>>("some_of_none") == std::nullopt);
        CHECK_THROWS_AS(client.call<std::uint64_t>("elements", TensorRef()), InvalidValue);
        CHECK_THROWS_AS(client.call<std::uint64_t>("elements", at::Tensor()), InvalidValue);
        CHECK_THROWS_AS(NamedTensors(client).put("x", TensorRef()), InvalidValue);
        {
            auto call = client.stream<void>("stream_of_none");
            auto reader = call.reader<TensorRef>();
            CHECK_THROWS_AS(reader.next(), RpcError);
        }
        {
            auto call = client.stream<bool>("take");
            auto writer = call.writer<TensorRef>();
            CHECK_THROWS_AS(writer.write(TensorRef()), InvalidValue);
            writer.end();
            CHECK_FALSE(call.result());
        }
        float numbers[] = {1, 2, 3};
        CHECK(client.call<std::uint64_t>("elements", TensorRef(numbers, DType::float32, {3})) == 3);
    }
}

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
