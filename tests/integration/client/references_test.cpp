// Values in the daemon as arguments, through the public client.

#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/mul.h>

#include <catch2/catch_test_macros.hpp>
#include <stdexcept>

#include <shared_tensor/json.hpp>
#include <shared_tensor/object.hpp>
#include <shared_tensor/torch.hpp>

#include "example_daemon.hpp"
#include "support/rpc.hpp"

using namespace shared_tensor;
using namespace shared_tensor::test;

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
