// Results that stay in the server: read, read twice, referred to, not read at all, and required transports.

#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/mul.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <stdexcept>

#include <shared_tensor/async_client.hpp>
#include <shared_tensor/json.hpp>
#include <shared_tensor/object.hpp>
#include <shared_tensor/torch.hpp>

#include "example_daemon.hpp"

using Catch::Matchers::ContainsSubstring;
using namespace shared_tensor::test;
using namespace shared_tensor;

namespace {

CallOptions requiring(std::string transports) {
    CallOptions options;
    options.require = std::move(transports);
    return options;
}

const auto kBig = 1 << 20;  // elements

}  // namespace

TEST_CASE("A result as it came is an argument that does not leave the server", "[client][memory][refs]") {
    const ExampleDaemon server;
    const Client client = server.client();
    at::Tensor held = client.call<at::Tensor>("held_ramp", kBig);
    held.zero_();  // of no account: what the server has is meant
    const int before = server.totals()["tensors"]["shm"]["tensors"];
    const auto scaled = client.call<at::Tensor>("scale", ref(held), 3.0);
    CHECK(at::equal(scaled, at::mul(at::arange(kBig, at::kFloat), 3)));
    CHECK(server.totals()["tensors"]["shm"]["tensors"] == before + 1);  // the result, no argument
    CHECK(client.statistics().bytes_out < 10'000);
}

TEST_CASE("Only a result as it came from shared memory can be referred to", "[client][memory][refs]") {
    const ExampleDaemon server;
    const Client client = server.client();
    const auto held = client.call<at::Tensor>("held_ramp", kBig);
    CHECK_NOTHROW(ref(held));
    CHECK_THROWS_WITH(ref(held.view({2, -1})), ContainsSubstring("view"));
    CHECK_THROWS_AS(ref(held.slice(0, 1)), std::invalid_argument);
    CHECK_THROWS_AS(ref(held.view(at::kInt)), std::invalid_argument);
    CHECK_THROWS_AS(ref(held.clone()), std::invalid_argument);
    CHECK_THROWS_AS(ref(at::arange(5)), std::invalid_argument);
    CHECK_THROWS_AS(ref(at::Tensor()), std::invalid_argument);
    CHECK_THROWS_AS(ref(server.far().call<at::Tensor>("held_ramp", kBig)), std::invalid_argument);
}

TEST_CASE("A reference to a result that was let go is rejected", "[client][memory][refs]") {
    const ExampleDaemon server;
    const Client client = server.client();
    auto held = client.call<at::Tensor>("held_ramp", kBig);
    const NamedReference reference = ref(held);
    held = at::Tensor();
    REQUIRE(server.leases_become(0));
    CHECK_THROWS_AS(client.call<at::Tensor>("scale", reference, 2.0), UnknownOrExpired);
}

TEST_CASE("A result that nobody reads is given up at once", "[client][memory]") {
    const ExampleDaemon server;
    const Client client = server.client();
    client.call("held_ramp", kBig);
    CHECK(server.leases_become(0));
    CHECK_THROWS_AS(client.call<std::string>("held_ramp", kBig), ResultMismatch);
    CHECK(server.leases_become(0));
    {
        auto batch = client.batch();
        const auto read = batch.add<at::Tensor>("held_ramp", kBig);
        batch.add<at::Tensor>("held_ramp", kBig / 2);
        batch.add<double>("add", 1, 2);
        batch.send();
        const auto kept = read.get();
        CHECK(server.leases() == 2);
    }
    CHECK(server.leases_become(0));
}

TEST_CASE("An item of a batch that is read twice is one tensor", "[client][memory]") {
    const ExampleDaemon server;
    const Client client = server.client();
    const at::Tensor ramp = at::arange(kBig, at::kFloat);
    {
        auto batch = client.batch();
        const auto item = batch.add<at::Tensor>("ramp", kBig);
        batch.send();
        CHECK(at::equal(item.get(), ramp));
        // Were its lease over with the first, others would write to its memory now.
        for (int i = 0; i < 5; ++i)
            CHECK(client.call<at::Tensor>("scaled_ramp", kBig, 2.0)[1].item<float>() == 2);
        const auto second = item.get();
        CHECK(at::equal(second, ramp));
        CHECK(second.is_same_size(item.get()));
    }
    CHECK(server.leases_become(0));
}

TEST_CASE("A way that is required is taken or the call fails, saying why", "[client][memory]") {
    const ExampleDaemon server;
    const Client client = server.client(), remote = server.far();
    const at::Tensor x = at::arange(kBig, at::kFloat);
    const Client by_shm = client.with(requiring("shm"));
    CHECK(at::equal(by_shm.call<at::Tensor>("scale", x, 2.0), at::mul(x, 2)));
    CHECK(by_shm.call<at::Tensor>("scale", at::arange(3, at::kFloat), 2.0)[2].item<float>() == 4);  // small ones too
    const Json before = server.totals()["tensors"];
    CHECK_THROWS_AS(remote.with(requiring("shm")).call<at::Tensor>("ramp", 10), TransportNotPossible);
    CHECK_THROWS_WITH(remote.with(requiring("shm")).call<at::Tensor>("scale", x, 2.0),
                      ContainsSubstring("an argument") && ContainsSubstring("shm"));
    CHECK_THROWS_AS(client.with(requiring("cuda_ipc")).call<at::Tensor>("ramp", 10), TransportNotPossible);
    CHECK(server.totals()["tensors"] == before);
    CHECK_THROWS_AS(client.with(requiring("pigeon")).call<at::Tensor>("ramp", 10), RpcError);
    CHECK(remote.with(requiring("body")).call<at::Tensor>("ramp", 10)[9].item<float>() == 9);
    CHECK(remote.with(requiring("shm")).call<double>("add", 1, 2) == 3);  // no tensor, no way
}

TEST_CASE("A batch and a task are held to the way that is required", "[client][memory]") {
    const ExampleDaemon server;
    const Client remote = server.far().with(requiring("shm"));
    auto batch = remote.batch();
    const auto ramp = batch.add<at::Tensor>("ramp", 10);
    const auto sum = batch.add<double>("add", 1, 2);
    batch.send();
    CHECK(sum.get() == 3);
    CHECK_THROWS_AS(ramp.get(), TransportNotPossible);
    const auto task = remote.submit<at::Tensor>("ramp", 10);
    CHECK_THROWS_AS(task.get(), TransportNotPossible);
    AsyncOptions options;
    options.client.url = server.url();
    options.client.local_socket = "none";
    const AsyncClient async(options);
    CHECK_THROWS_AS(async.with(requiring("shm")).call<at::Tensor>("ramp", 10).get(), TransportNotPossible);
    CHECK_THROWS_AS(async.with(requiring("shm")).submit<at::Tensor>("ramp", 10).get(), TransportNotPossible);
}

TEST_CASE("Items of a batch are arguments of later ones, and what is between them does not leave the daemon",
          "[client][refs]") {
    const ExampleDaemon server;
    const Client client = server.client();
    const at::Tensor x = at::arange(1 << 20, at::kFloat);
    auto batch = client.batch();
    const auto twice = batch.add<nlohmann::json>("echo", 5);
    const auto scaled = batch.add<at::Tensor>("scale", named("x", x), named("factor", twice));
    const auto again = batch.add<at::Tensor>("scale", named("x", scaled), named("factor", 2.0));
    const auto words = batch.add<Object>("vocabulary.make", std::vector<std::string>{"a"});
    const auto added = batch.add<int>("vocabulary.add", words, "b");
    const auto failed = batch.add("fail", "on purpose");
    const auto never = batch.add<at::Tensor>("scale", failed);
    batch.send();
    CHECK(at::equal(again.get(), at::mul(x, 10)));
    CHECK(added.get() == 2);
    CHECK(client.call<int>("vocabulary.add", words.get(), "c") == 3);
    try {
        (void)never.get();
        FAIL("a result");
    } catch (const InputFailed& error) {
        CHECK(error.is(ErrorCode::input_failed));
        CHECK(std::string(error.what()).find("of the batch failed, which this one needs") != std::string::npos);
    }
}

TEST_CASE("An item is no argument of another batch", "[client][refs]") {
    const ExampleDaemon server;
    const Client client = server.client();
    auto one = client.batch(), other = client.batch();
    const auto item = one.add<double>("add", 1, 2);
    CHECK_THROWS_AS(other.add<double>("add", item, 2), std::logic_error);
    CHECK_THROWS_AS(other.notify("echo", named("value", item)), std::logic_error);
    CHECK_THROWS_AS(client.call<double>("add", item, 2), InvalidParams);
    CHECK_THROWS_AS(client.call<at::Tensor>("scale", ref("no such name")), UnknownOrExpired);
}

TEST_CASE("A lease names the tensor that it holds, for its principal", "[client][refs]") {
    const ExampleDaemon server;
    const Client session = server.client().new_session();
    const HeaderList headers{{"Shared-Tensor-Session", session.session()}, {"Shared-Tensor-Accept", "shm"}};
    const auto params = [](const Json& x, double factor) { return Json::array({x, factor}); };
    const Json x{{"$tensor", {{"dtype", "float32"}, {"data", {1, 2, 3}}}}};
    const Json first = call(server.daemon.port(), "scale", params(x, 2), headers);
    REQUIRE(first["$tensor"].contains("lease"));
    const std::string lease = first["$tensor"]["lease"];
    const Json by_lease{{"$ref", lease}};
    CHECK(call(server.daemon.port(), "scale", params(by_lease, 10))["$tensor"]["data"] == Json({20, 40, 60}));
    const Json task{{"method", "scale"}, {"params", params(by_lease, 5)}};
    const std::string id = call(server.daemon.port(), "task.submit", task)["id"];
    CHECK(call(server.daemon.port(), "task.result", {{"id", id}, {"timeout_ms", 20000}})["$tensor"]["data"] ==
          Json({10, 20, 30}));
    CHECK(call(server.daemon.port(), "echo", Json::array({Json{{"$literal", by_lease}}})) ==
          Json{{"$literal", by_lease}});
}
