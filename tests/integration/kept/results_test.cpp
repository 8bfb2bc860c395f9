// Results that view an argument in the caller's memory, which the caller fills with something else afterwards.

#include <ATen/core/Tensor.h>  // before Catch, whose CHECK libtorch would replace by its own
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>

#include <catch2/catch_test_macros.hpp>
#include <shared_tensor/torch.hpp>

#include "keeping_daemon.hpp"
#include "raw_lender.hpp"

using namespace shared_tensor;
using namespace shared_tensor::test;
using namespace std::chrono_literals;

TEST_CASE("A cached result stays as it is when the first caller fills its memory anew", "[kept][memory]") {
    const KeepingDaemon server;
    const Client client = server.client(), other = server.client(), far = server.by_bytes();
    const at::Tensor x = lent(client, 1);
    CHECK(at::equal(client.call<at::Tensor>("same_cached", x), all(1)));
    x.fill_(kLater);
    CHECK(at::equal(far.call<at::Tensor>("same_cached", all(1)), all(1)));
    CHECK(at::equal(other.call<at::Tensor>("same_cached", all(1)), all(1)));
    CHECK(at::equal(client.call<at::Tensor>("same_cached", x), all(kLater)));
}

TEST_CASE("The result of a finished task stays as it is when its caller fills its memory anew", "[kept][memory]") {
    const KeepingDaemon server;
    const Client client = server.client();
    const at::Tensor x = lent(client, 1);
    const std::string id = client.submit<at::Tensor>("same", x).id();
    REQUIRE(call(server.daemon.port(), "task.wait", {{"id", id}, {"timeout_ms", 20'000}})["state"] == "completed");
    x.fill_(kLater);
    CHECK(at::equal(client.task<at::Tensor>(id).get(), all(1)));
    CHECK(at::equal(server.by_bytes().task<at::Tensor>(id).get(), all(1)));
}

TEST_CASE("A repeat by idempotency key gets the first result when its memory was filled anew", "[kept][memory]") {
    const KeepingDaemon server;
    const Client client = server.client().with({.idempotency_key = "once"});
    const at::Tensor x = lent(client, 1);
    CHECK(at::equal(client.call<at::Tensor>("same", x), all(1)));
    x.fill_(kLater);
    CHECK(at::equal(server.by_bytes().with({.idempotency_key = "once"}).call<at::Tensor>("same", all(1)), all(1)));
    CHECK(at::equal(client.call<at::Tensor>("same", all(1)), all(1)));
}

TEST_CASE("A tensor that waits in the daemon to be downloaded stays as it is", "[kept][memory]") {
    const KeepingDaemon server;
    const RawLender client(server.daemon.port());
    client.fill(1);
    const Json result = call(server.daemon.port(), "same", client.tensor(), client.headers("url"));
    client.fill(kLater);
    CHECK(at::equal(server.client().call<at::Tensor>("same", ref(result["$tensor"]["lease"].get<std::string>())),
                    all(1)));
}

TEST_CASE("What is copied of a result in its caller's memory is counted, once", "[kept][memory]") {
    const KeepingDaemon server;
    const RawLender client(server.daemon.port());
    const Json x = client.tensor();
    const auto copied = [&](const std::string& method, const Json& params) {
        const HttpReply reply = post(server.daemon.port(), call_object(method, params).dump(), client.headers("shm"));
        INFO(reply.body);
        return reply.header("Shared-Tensor-Transport");
    };
    CHECK(copied("same", x) == "shm;tensors=2;copied=262144");
    CHECK(copied("half", x) == "shm;tensors=2;copied=131072");
    CHECK(copied("same_cached", x) == "shm;tensors=2;copied=524288");  // the argument, then the result for its reader
    CHECK(copied("keep", {{"x", x}, {"name", "a"}}) == "shm;tensors=1;copied=262144");
    CHECK(copied("box", x) == "shm;tensors=1;copied=262144");
    CHECK(copied("task.submit", {{"method", "same"}, {"params", Json::array({x})}}) == "shm;tensors=1;copied=262144");
}

TEST_CASE("A cached result does not lie in memory that clients write to", "[kept][memory]") {
    const KeepingDaemon server;
    const Client client = server.client(), other = server.client();
    const at::Tensor board = client.call<at::Tensor>("board", "b", kCount);
    CHECK(at::equal(client.call<at::Tensor>("board_cached", "b", kCount), all(0)));
    board.fill_(kLater);
    CHECK(at::equal(other.call<at::Tensor>("board", "b", kCount), all(kLater)));
    CHECK(at::equal(other.call<at::Tensor>("board_cached", "b", kCount), all(0)));
}
