// What a service that computes needs: dtypes, devices, no autograd, and figures of its runs.

#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <shared_tensor/client.hpp>
#include <shared_tensor/json.hpp>
#include <shared_tensor/tensors.hpp>
#include <shared_tensor/torch.hpp>

#include "support/daemon.hpp"
#include "support/rpc.hpp"

using namespace shared_tensor;
using namespace shared_tensor::test;
using Catch::Matchers::ContainsSubstring;

namespace {

struct ComputeDaemon {
    Client client() const { return Client(daemon.url()); }
    Daemon daemon{Words{"--load", SHARED_TENSOR_KEEPING_PLUGIN, "--service-name", "trunk", "--service-version", "2.1"}};
};

}  // namespace

TEST_CASE("tensors become the dtype that a function asks for, if they are floating-point ones", "[compute]") {
    const ComputeDaemon server;
    const Client client = server.client();
    const at::Tensor x = at::arange(100'000, at::kFloat), whole = at::arange(10, at::kLong);
    CHECK(client.call<std::string>("as_half", x) == "Half");
    CHECK(client.call<std::string>("as_it_is", x) == "Float");
    CHECK(client.call<std::string>("as_half", whole) == "Long");
    CHECK(client.submit<std::string>("as_half", x).get() == "Half");
    NamedTensors(client).put("x", x);
    const Json named{{"$ref", "x"}};
    CHECK(call(server.daemon.port(), "as_half", Json::array({named})) == "Half");
    CHECK(call(server.daemon.port(), "as_it_is", Json::array({named})) == "Float");
    auto stream = client.stream("dtypes_of");
    auto tensors = stream.writer<at::Tensor>();
    auto names = stream.reader<std::string>();
    tensors.write(x);
    tensors.end();
    CHECK(names.next() == "Double");
}

TEST_CASE("a function runs on the device and with the autograd that it asks for", "[compute]") {
    const ComputeDaemon server;
    CHECK(server.client().call<std::string>("on_cpu", at::arange(3, at::kFloat)) == "cpu");
    CHECK(server.client().call<bool>("records"));
    CHECK_FALSE(server.client().call<bool>("records_nothing"));
    CHECK(server.client().call<bool>("records"));  // the guard went with the call
}

TEST_CASE("the daemon tells what service it is, and how the runs of each function went", "[compute]") {
    const ComputeDaemon server;
    const Client client = server.client();
    for (int i = 0; i < 3; ++i)
        CHECK(client.call<double>("slow", 0.05) == 0.05);
    CHECK(client.call<bool>("fails_below", 1));
    CHECK_THROWS_AS(client.call<bool>("fails_below", -1), FunctionFailed);
    const Json info = call(server.daemon.port(), "server.info");
    CHECK(info["service"]["name"] == "trunk");
    CHECK(info["service"]["version"] == "2.1");
    CHECK(info["service"]["devices"] == Json::array({"cpu"}));
    CHECK(info["service"]["requests"] >= 5);
    const Json functions = info["totals"]["functions"];
    CHECK(functions["slow"]["calls"] == 3);
    CHECK(functions["slow"]["success_rate"] == 1.0);
    CHECK(functions["slow"]["compute_ms"]["p50"] >= 50);
    CHECK(functions["fails_below"]["calls"] == 2);
    CHECK(functions["fails_below"]["failures"] == 1);
    CHECK(functions["fails_below"]["success_rate"] == 0.5);
    CHECK_FALSE(functions.contains("records"));  // never called
}

TEST_CASE("a client knows what of its time was computing", "[compute]") {
    const ComputeDaemon server;
    const Client client = server.client();
    client.call<double>("slow", 0.05);
    const ClientStatistics statistics = client.statistics();
    CHECK(statistics.compute.count == 1);
    CHECK(statistics.compute.p50 >= std::chrono::milliseconds(50));
    CHECK(statistics.network.count == 1);
    CHECK(statistics.network.p50 + statistics.compute.p50 <= statistics.latency.max * 1.2);
    const HttpReply reply = post(server.daemon.port(), call_object("slow", {0.01}).dump());
    CHECK_THAT(reply.header("Server-Timing"), ContainsSubstring("compute;dur="));
    CHECK(post(server.daemon.port(), call_object("server.ping", nullptr).dump()).header("Server-Timing").empty());
}
