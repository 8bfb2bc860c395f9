#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <catch2/catch_test_macros.hpp>
#include <thread>

#include <shared_tensor/json.hpp>
#include <shared_tensor/torch.hpp>

#include "example_daemon.hpp"

using namespace shared_tensor;
using namespace shared_tensor::test;

namespace {

const auto kBig = 1 << 20;  // elements

}  // namespace

TEST_CASE("A tensor and its result cross in shared memory, and the lease ends with the last of it",
          "[client][memory]") {
    const ExampleDaemon server;
    const Client client = server.client();
    const at::Tensor x = at::arange(kBig, at::kFloat);
    {
        const auto y = client.call<at::Tensor>("scale", x, 3.0);
        CHECK(at::equal(y, at::mul(x, 3)));
        CHECK(server.totals()["shared_memory"]["leases"] == 1);
        CHECK(server.totals()["shared_memory"]["leased_bytes"] == 4 * kBig);
        const at::Tensor row = y.view({1024, -1})[5];
        CHECK(row[0].item<float>() == 3 * 5 * 1024);
    }
    CHECK(server.leases_become(0));
    CHECK(client.statistics().bytes_in < kBig);
    CHECK(client.statistics().bytes_out < kBig);
}

TEST_CASE("Nothing is copied of a result that was born in shared memory", "[client][memory]") {
    const ExampleDaemon server;
    const Client client = server.client();
    const at::Tensor ramp = at::arange(kBig, at::kFloat);
    CHECK(at::equal(client.call<at::Tensor>("ramp", kBig), ramp));
    CHECK(at::equal(client.call<at::Tensor>("scaled_ramp", kBig, 3.0), at::mul(ramp, 3)));
    CHECK(at::equal(client.call<at::Tensor>("held_ramp", kBig), ramp));
    CHECK(at::equal(client.call<at::Tensor>("held_ramp", kBig), ramp));
    CHECK(at::equal(client.call<at::Tensor>("ramp", 10), at::arange(10, at::kFloat)));
    CHECK(server.totals()["tensors"]["shm"] == Json{{"tensors", 5}, {"copied_bytes", 0}});
    CHECK(at::equal(client.call<at::Tensor>("ramp", 0), at::arange(0, at::kFloat)));
    CHECK_THROWS_AS(client.call<at::Tensor>("ramp", -1), FunctionFailed);
}

TEST_CASE("A result that the function made writable is written to by all who have it", "[client][memory]") {
    const ExampleDaemon server;
    const Client one = server.client(), two = server.client();
    at::Tensor mine = one.call<at::Tensor>("board", kBig);
    const at::Tensor theirs = two.call<at::Tensor>("board", kBig);
    mine[5] = 7;
    CHECK(theirs[5].item<float>() == 7);
    CHECK(server.far().call<at::Tensor>("board", kBig)[5].item<float>() == 7);
    mine = at::Tensor();
    CHECK(server.leases_become(1));
    CHECK(one.call<at::Tensor>("board", kBig)[5].item<float>() == 7);
    CHECK(server.totals()["shared_memory"]["segments"] == 1);
}

TEST_CASE("Nothing is copied of an argument that was born in shared memory", "[client][memory]") {
    const ExampleDaemon server;
    const Client client = server.client();
    at::Tensor x = client.empty_in_shared_memory({kBig}, at::kFloat);
    for (int i = 0; i < 3; ++i) {
        x.fill_(i);
        CHECK(at::equal(client.call<at::Tensor>("scale", x.view({1024, -1}).t(), 2.0),
                        at::mul(x.view({1024, -1}).t(), 2)));
    }
    CHECK(server.totals()["tensors"]["shm"]["copied_bytes"] == 3 * 4 * kBig);  // the results
    const Client other = server.far();
    CHECK(at::equal(other.call<at::Tensor>("scale", other.empty_in_shared_memory({3}, at::kInt).fill_(1), 2.0),
                    at::full({3}, 2.0)));
}

TEST_CASE("The kept result of a task is copied into shared memory once", "[client][memory]") {
    const ExampleDaemon server;
    const Client client = server.client();
    const at::Tensor x = at::arange(kBig, at::kFloat);
    const auto task = client.submit<at::Tensor>("scale", x, 2.0);
    for (int i = 0; i < 3; ++i)
        CHECK(at::equal(client.task<at::Tensor>(task.id()).get(), at::mul(x, 2)));
    // The argument, which the task may read after its submission was answered, and the result.
    CHECK(server.totals()["tensors"]["shm"] == Json{{"tensors", 4}, {"copied_bytes", 2 * 4 * kBig}});
}

TEST_CASE("A hundred rounds use the same few segments", "[client][memory]") {
    const ExampleDaemon server;
    const Client client = server.client();
    for (int i = 0; i < 100; ++i) {
        const at::Tensor x = at::arange(i, i + kBig, at::kFloat);
        REQUIRE(at::equal(client.call<at::Tensor>("scale", x, 2.0), at::mul(x, 2)));
    }
    CHECK(server.leases_become(0));
    const Json memory = server.totals()["shared_memory"];
    CHECK(memory["leases_granted"] == 100);
    CHECK(memory["segments"] == 0);
    CHECK(memory["idle_segments"].get<int>() <= 10);
}

TEST_CASE("Strided, empty and small tensors of many threads cross", "[client][memory]") {
    const ExampleDaemon server;
    const Client client = server.client();
    std::vector<std::jthread> threads;
    std::atomic<int> right{0};
    for (int thread = 0; thread < 4; ++thread) {
        threads.emplace_back([&, thread] {
            for (int i = 0; i < 25; ++i) {
                const at::Tensor x = at::arange(6 * (i + 1), at::kDouble).view({2, -1}).add(thread);
                const bool same = at::equal(client.call<at::Tensor>("scale", x.t(), 2.0), at::mul(x.t(), 2)) &&
                                  client.call<at::Tensor>("scale", x.narrow(1, 0, 0), 2.0).numel() == 0;
                right += same ? 1 : 0;
            }
        });
    }
    threads.clear();
    CHECK(right == 100);
    CHECK(server.leases_become(0));
}

TEST_CASE("Small tensors go as bytes, from what size on a client shares memory is its option", "[client][memory]") {
    const ExampleDaemon server;
    const auto shared = [&](std::size_t min_shared_bytes, std::int64_t elements) {
        ClientOptions options;
        options.url = server.url();
        options.min_shared_bytes = min_shared_bytes;
        const Client client(options);
        const auto before = server.totals()["tensors"]["shm"]["tensors"].get<int>();
        CHECK(client.call<double>("slow_sum", at::ones({elements}, at::kFloat), 0.0) == static_cast<double>(elements));
        return server.totals()["tensors"]["shm"]["tensors"].get<int>() - before;
    };
    CHECK(shared(ClientOptions().min_shared_bytes, 8'191) == 0);
    CHECK(shared(ClientOptions().min_shared_bytes, 8'192) == 1);
    CHECK(shared(100'000, 8'192) == 0);
    CHECK(shared(100'000, 25'000) == 1);
    CHECK(shared(0, 1) == 1);
}

TEST_CASE("A stateful session of a client that shares memory keeps its memory", "[client][memory]") {
    const ExampleDaemon server;
    const Client client = server.client();
    const at::Tensor x = at::arange(kBig, at::kFloat);
    (void)client.call<at::Tensor>("scale", x, 2.0);
    const Client session = client.new_session();
    CHECK(session.session() != client.session());
    CHECK(at::equal(session.call<at::Tensor>("scale", x, 2.0), at::mul(x, 2)));
    CHECK(server.totals()["shared_memory"]["leases_granted"] == 2);
}
