// Tensors of libtorch at the client, tensors that are none, and simulated devices.

#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/zeros.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <optional>

#include <shared_tensor/client.hpp>
#include <shared_tensor/server.hpp>
#include <shared_tensor/share.hpp>
#include <shared_tensor/simulated.hpp>
#include <shared_tensor/stream.hpp>
#include <shared_tensor/tensors.hpp>
#include <shared_tensor/torch.hpp>

#include "integration/client/example_daemon.hpp"

using Catch::Matchers::ContainsSubstring;
using namespace shared_tensor::test;
using namespace shared_tensor;

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

struct SimulatedServer {
    explicit SimulatedServer(const Words& variables = {})
        : daemon({"--load", kSimulatedPlugin, "--load", kExamplePlugin}, variables), client(daemon.url()) {}

    Json info() const { return call(daemon.port(), "server.info"); }
    Json statistics() const { return call(daemon.port(), "simulated.statistics"); }
    at::Tensor to_device(const at::Tensor& x, const CallOptions& options = {}) const {
        return client.with(options).call<at::Tensor>("simulated.to_device", x);
    }

    const Daemon daemon;
    const Client client;
};

}  // namespace

TEST_CASE_METHOD(Example, "Tensors of libtorch go to functions and come back", "[client]") {
    const at::Tensor x = at::arange(6, at::kFloat).view({2, 3}), strided = at::arange(12, at::kDouble).view({3, 4}).t();
    CHECK(at::equal(client.call<at::Tensor>("scale", named("x", x), named("factor", 3.0)), at::mul(x, 3.0)));
    CHECK(at::equal(client.call<at::Tensor>("scale", strided, 1.0), strided));
    CHECK(client.call<at::Tensor>("scale", at::zeros({0, 3}), 1.0).sizes() == at::IntArrayRef({0, 3}));
    CHECK(client.call<at::Tensor>("scale", at::arange(1, at::kFloat)[0], 1.0).dim() == 0);
    const at::Tensor big = at::arange(8 << 20, at::kFloat);
    CHECK(at::equal(client.call<at::Tensor>("scale", big, 1.0), big));
    const NamedTensors names(client);
    names.put("set", std::map<std::string, at::Tensor>{{"x", x}, {"t", x.t()}});
    const auto set = names.get("set").map<at::Tensor>();
    CHECK(at::equal(set.at("x"), x));
    CHECK(at::equal(set.at("t"), x.t()));
}

TEST_CASE_METHOD(Example, "Only a result as it came from shared memory can be referred to", "[client][memory][refs]") {
    constexpr int kBig = 1 << 20;
    const auto held = client.call<at::Tensor>("held_ramp", kBig);
    CHECK_NOTHROW(ref(held));
    CHECK_THROWS_WITH(ref(held.view({2, -1})), ContainsSubstring("view"));
    for (const at::Tensor& other : {held.slice(0, 1), held.view(at::kInt), held.clone(), at::arange(5), at::Tensor(),
                                    server.far().call<at::Tensor>("held_ramp", kBig)})
        CHECK_THROWS_AS(ref(other), std::invalid_argument);
}

TEST_CASE("A tensor that is none is an error as a result, an argument, an item and under a name", "[client]") {
    ServerOptions options;
    options.port = 0;
    Server server(functions(), options);
    server.start();
    for (const Client& client : {Client(server.url()), far_client(server.url())}) {
        CHECK_THROWS_AS(client.call<TensorRef>("none"), RpcError);
        CHECK_THROWS_AS(client.call<at::Tensor>("none_of_torch"), RpcError);
        CHECK(client.call<std::optional<TensorRef>>("some_of_none") == std::nullopt);
        CHECK_THROWS_AS(client.call<std::uint64_t>("elements", TensorRef()), InvalidValue);
        CHECK_THROWS_AS(client.call<std::uint64_t>("elements", at::Tensor()), InvalidValue);
        CHECK_THROWS_AS(NamedTensors(client).put("x", TensorRef()), InvalidValue);
        auto none = client.stream<void>("stream_of_none");
        auto reader = none.reader<TensorRef>();
        CHECK_THROWS_AS(reader.next(), RpcError);
        auto take = client.stream<bool>("take");
        auto writer = take.writer<TensorRef>();
        CHECK_THROWS_AS(writer.write(TensorRef()), InvalidValue);
        writer.end();
        CHECK_FALSE(take.result());
        float numbers[] = {1, 2, 3};
        CHECK(client.call<std::uint64_t>("elements", TensorRef(numbers, DType::float32, {3})) == 3);
    }
}

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
    const at::Tensor x = at::arange(4'000, at::kFloat);  // each order of adding them has the same sum
    {
        const at::Tensor result = server.to_device(x, {.require = "cuda_ipc, shm"});
        CHECK(simulated::on_device(result));
        CHECK(at::equal(result, x));
        const at::Tensor there = simulated::to_device(x);
        CHECK(server.client.with({.require = "cuda_ipc"}).call<double>("slow_sum", there, 0.0) ==
              x.sum().item<double>());
        CHECK(server.statistics()["opened"] == 1);
    }
    CHECK(eventually([&] { return server.statistics()["allocations"] == 0 && server.statistics()["open"] == 0; }));
    for (const char* undefined : {"freed_while_open", "opened_twice", "closed_twice"})
        CHECK(server.statistics()[undefined] == 0);
    CHECK(simulated::statistics().freed_while_open == 0);

    // Faults of the daemon's devices can be asked for by a call.
    server.client.call<void>("simulated.inject", "reject_export");
    CHECK_FALSE(simulated::on_device(server.to_device(x)));
    server.client.call<void>("simulated.inject", "");
    CHECK(simulated::on_device(server.to_device(x)));
    CHECK_THROWS_AS(server.client.call<void>("simulated.inject", "burn"), FunctionFailed);
}
