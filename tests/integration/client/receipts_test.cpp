// What a receipt says of calls to the built daemon.

#include <ATen/core/Tensor.h>
#include <ATen/ops/ones.h>

#include <catch2/catch_test_macros.hpp>
#include <future>

#include <shared_tensor/torch.hpp>

#include "example_daemon.hpp"
#include "far_client.hpp"
#include "support/rpc.hpp"

using namespace shared_tensor;
using namespace shared_tensor::test;
using namespace std::chrono_literals;

namespace {

constexpr std::int64_t kElements = 1 << 20;  // float32: 4 MiB

}  // namespace

TEST_CASE("A receipt shows that tensors in shared memory are not copied, and that others are, once", "[client]") {
    const ExampleDaemon server;
    const Client client = server.client();
    const std::uint64_t bytes = 4 * kElements;
    at::Tensor shared = client.empty_in_shared_memory({kElements}, at::kFloat);
    shared.fill_(1);
    Receipt receipt;
    CHECK(client.call<double>(receipt, "slow_sum", shared, 0.0) == kElements);
    REQUIRE(receipt.transports.size() == 1);
    CHECK(receipt.transports[0].name == "shm");
    CHECK(receipt.transports[0].tensors == 1);
    CHECK(receipt.bytes_copied == 0);

    client.call<double>(receipt, "slow_sum", at::ones({kElements}), 0.0);
    CHECK(receipt.transports[0].name == "shm");
    CHECK(receipt.bytes_copied == bytes);

    client.call<at::Tensor>(receipt, "ramp", kElements);
    CHECK(receipt.bytes_copied == 0);
    client.call<at::Tensor>(receipt, "scale", shared, 3.0);  // the function does not ask for shared memory
    CHECK(receipt.transports[0].tensors == 2);
    CHECK(receipt.bytes_copied == bytes);
}

TEST_CASE("A receipt of a client on another host names the body", "[client]") {
    const ExampleDaemon server;
    Receipt receipt;
    far_client(server.url()).call<at::Tensor>(receipt, "scale", at::ones({kElements}), 3.0);
    REQUIRE(receipt.transports.size() == 1);
    CHECK(receipt.transports[0].name == "body");
    CHECK(receipt.transports[0].tensors == 2);
}

TEST_CASE("A receipt tells how long a call waited for a worker, and how long it ran", "[client]") {
    const ExampleDaemon server({"--workers", "1"});
    const Client client = server.client(), other = server.client();
    const auto workers = [&] { return call(server.daemon.port(), "server.info")["totals"]["workers"]; };
    auto before = std::async(std::launch::async, [&] { other.call<double>("sleep", 600.0); });
    REQUIRE(eventually([&] { return workers()["busy"] == 1; }));
    Receipt receipt;
    auto waiting = std::async(std::launch::async, [&] { client.call<double>(receipt, "sleep", 0.05); });
    REQUIRE(eventually([&] { return workers()["queued"] == 1; }));
    std::this_thread::sleep_for(100ms);
    other.shutdown();  // its call is cancelled
    CHECK_THROWS_AS(before.get(), TransportFailure);
    waiting.get();
    REQUIRE((receipt.run && receipt.queue));
    CHECK(*receipt.run >= 50ms);
    CHECK(*receipt.queue >= 100ms);
    CHECK(receipt.total >= *receipt.queue + *receipt.run);

    Receipt failed;
    CHECK_THROWS_AS(client.call(failed, "fail", "as it should"), FunctionFailed);
    CHECK(failed.run);
    CHECK(failed.tries == 1);
}
