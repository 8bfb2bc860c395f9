// Device memory when something goes wrong: on the simulated device, where it can be asked for.

#include <ATen/ops/arange.h>
#include <ATen/ops/ones.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <thread>

#include <shared_tensor/async_client.hpp>
#include <shared_tensor/simulated.hpp>
#include <shared_tensor/torch.hpp>

#include "media.hpp"

using namespace shared_tensor;
using namespace shared_tensor::test;

namespace {

struct Injected {
    explicit Injected(const simulated::Faults& faults) { simulated::inject(faults); }
    Injected(const Injected&) = delete;
    Injected& operator=(const Injected&) = delete;
    ~Injected() { simulated::inject({}); }
};

/// A server with these variables, whose tensors lie on a simulated device.
struct OnSimulated : TransportServer {
    explicit OnSimulated(const Words& variables = {}, int port = 0) : TransportServer(enabled(), variables, port) {}

private:
    static TransportCase enabled() {
        simulated::enable(1);
        return kSimulated;
    }
};

Words faults(const char* words) { return {std::string("SHARED_TENSOR_SIMULATED_FAULTS=") + words}; }

at::Tensor ones() { return simulated::to_device(at::ones({kMany}, at::kFloat)); }

}  // namespace

TEST_CASE("Simulated devices of the environment are there before the first call", "[media][device]") {
    Role role("simulated devices of the environment", {"SHARED_TENSOR_SIMULATED_DEVICES=2"});
    const int code = role.child().wait();
    INFO(role.out());
    CHECK(code == 0);
}

TEST_CASE("Two tensors of one allocation are one opening", "[media][device]") {
    const OnSimulated server;
    const Client client = server.client();
    const auto before = simulated::statistics().opened;
    const auto whole = client.call<at::Tensor>("held");
    const auto part = client.call<at::Tensor>("held_part", 0, 1);
    CHECK(simulated::statistics().opened == before + 1);
    CHECK(part.const_data_ptr() == whole.const_data_ptr());
    CHECK(totals_of(client)["shared_memory"]["leases"] == 2);
    CHECK(client.statistics().bytes_in < 20'000);
}

TEST_CASE("What is not ready is waited for, also where no event is left", "[media][device]") {
    const OnSimulated without_events(faults("reject_events"));
    CHECK(is_ramp(without_events.client().call<at::Tensor>("late", kMany, 300)));
    const OnSimulated server;
    const at::Tensor x = simulated::empty({kMany}, at::kFloat);
    simulated::launch([x] {
        std::this_thread::sleep_for(std::chrono::milliseconds(300));
        x.fill_(1);
    });
    CHECK(server.client().call<double>("sum_later", x, 0) == kMany);
}

TEST_CASE("What cannot be exported goes by host memory, with its bytes counted", "[media][device]") {
    const OnSimulated server(faults("reject_export"));
    const Client client = server.client();
    const auto result = client.call<at::Tensor>("held");
    CHECK(is_ramp(result));
    CHECK(!simulated::on_device(result));
    const at::Tensor x = ones();
    CHECK(client.call<bool>("lies_here", x));
    const Injected injected({.reject_export = true});
    CHECK(!client.call<bool>("lies_here", x));
    CHECK(client.call<double>("sum_later", x, 0) == kMany);
}

TEST_CASE("A client that cannot open the server's memory gets copies, and says why", "[media][device]") {
    const OnSimulated server;
    const Injected injected({.reject_open = true});
    {
        const auto two = server.client().call<std::vector<at::Tensor>>("two");
        REQUIRE(two.size() == 2);
        CHECK(is_ramp(two[0]));
        CHECK(is_ramp(two[1], 1000));
    }
    const Client client = server.client();
    const int before = totals_of(client)["tensors"]["cuda_ipc"]["tensors"],
              shm = totals_of(client)["tensors"]["shm"]["tensors"];
    CHECK(before == 2);
    for (const int tensors : {1, 2}) {  // found out with the first
        const auto result = client.call<at::Tensor>("held");
        CHECK(is_ramp(result));
        CHECK_FALSE(simulated::on_device(result));
        CHECK(totals_of(client)["tensors"]["shm"]["tensors"] == shm + tensors);
        CHECK(totals_of(client)["tensors"]["cuda_ipc"]["tensors"] == before + 1);
    }
    const at::Tensor x = ones();
    CHECK_FALSE(client.call<bool>("lies_here", x));
    const auto transports = client.transports();
    const auto cuda_ipc = std::find_if(transports.begin(), transports.end(),
                                       [](const TransportInfo& transport) { return transport.name == "cuda_ipc"; });
    REQUIRE(cuda_ipc != transports.end());
    CHECK_FALSE(cuda_ipc->usable);
    CHECK(cuda_ipc->reason.find("cannot open the server's memory") != std::string::npos);
    CHECK_THROWS_AS(client.with({.require = "cuda_ipc"}).call<at::Tensor>("held"), TransportNotPossible);
    CHECK_FALSE(simulated::on_device(client.with({.require = "cuda_ipc, shm"}).call<at::Tensor>("held")));
    CHECK(leases_become(client, 0));
}

TEST_CASE("One block that cannot be opened is copied, and the others are opened as before", "[media][device]") {
    const OnSimulated server;
    const Client client = server.client();
    CHECK(simulated::on_device(client.call<at::Tensor>("numbers", kMany)));
    {
        const Injected injected({.reject_open = true});
        const auto copy = client.call<at::Tensor>("held");
        CHECK(is_ramp(copy));
        CHECK_FALSE(simulated::on_device(copy));
        CHECK_THROWS_AS(client.with({.require = "cuda_ipc"}).call<at::Tensor>("held"), TransportNotPossible);
    }
    CHECK(leases_become(client, 0));
    CHECK(simulated::on_device(client.call<at::Tensor>("held")));
    CHECK(client.transports().size() > 4);
}

TEST_CASE("An argument that the server cannot open is sent again as a copy, and the client keeps nothing lent",
          "[media][device]") {
    const OnSimulated server(faults("reject_open"));
    const Client client = server.client();
    const auto before = simulated::statistics().allocations;
    {
        const at::Tensor x = ones();
        CHECK_THROWS_AS(client.with({.require = "cuda_ipc"}).call<double>("sum_later", x, 0), TransportNotPossible);
        CHECK(client.call<double>("sum_later", x, 0) == kMany);
        CHECK_FALSE(client.call<bool>("lies_here", x));
    }
    CHECK(server.client().call<double>("sum_later", ones(), 0) == kMany);
    {
        AsyncOptions options;
        options.client = server.client_options();
        AsyncClient calls(options), tasks(options);
        auto sum = calls.call<double>("sum_later", ones(), 0);
        auto task = tasks.submit<double>("sum_later", ones(), 0);
        CHECK(sum.get() == kMany);
        CHECK(task.get() == kMany);
    }
    CHECK(eventually([&] { return simulated::statistics().allocations == before; }));
}

TEST_CASE("A server that dies while it opens an argument costs the call and nothing else", "[media][device]") {
    const auto server = std::make_unique<OnSimulated>(faults("crash_at_open"));
    const Client client = server->client();
    const auto before = simulated::statistics().allocations;
    {
        const at::Tensor x = ones();
        CHECK_THROWS_AS(client.call<double>("sum_later", x, 0), RpcError);
        server->child().wait();
        const OnSimulated next({}, server->port());
        CHECK(eventually([&] {
            try {
                return client.call<double>("sum_later", x, 0) == kMany;
            } catch (const RpcError&) {
                return false;
            }
        }));
    }
    CHECK(eventually([&] { return simulated::statistics().allocations == before; }));
}

TEST_CASE("A client that dies while it opens a result leaves no lease and no memory", "[media][device]") {
    const OnSimulated server;
    const Client client = server.client();
    Role dying = holding_client(server, kSimulated, 1, faults("crash_at_open"));
    CHECK(dying.child().wait() == 128 + SIGKILL);
    CHECK(leases_become(client, 0));
    CHECK(deferred_frees_become(client, 0));
    CHECK(eventually([&] { return counts_of(client).at("events") == 0; }));
}

TEST_CASE("Memory under a lease is not freed while a client has it open, however slowly that closes",
          "[media][device]") {
    const OnSimulated server;
    const Client client = server.client();
    const Injected injected({.slow_open_ms = 20, .slow_close_ms = 50});
    for (int round = 0; round < 10; ++round)
        CHECK(client.call<at::Tensor>("numbers", 1000).numel() == 1000);
    CHECK(leases_become(client, 0));
    CHECK(eventually([&] { return counts_of(client).at("allocations") == 0; }));
    CHECK(counts_of(client).at("undefined") == 0);
}

TEST_CASE("A result that lies in the caller's own memory is copied before it goes back", "[media][device]") {
    const OnSimulated server;
    const Client client = server.client();
    const at::Tensor x = simulated::to_device(at::arange(kMany, at::kFloat));
    const auto y = client.call<at::Tensor>("echo", x);
    CHECK(y.const_data_ptr() != x.const_data_ptr());
    CHECK(same_values(x, y));
    // And a result of the server's that goes there as an argument.
    const auto held = client.call<at::Tensor>("held");
    CHECK(client.call<bool>("lies_here", held));
    CHECK(same_values(client.call<at::Tensor>("echo", held), held));
}

TEST_CASE("What a reader writes to a kept result on a device is seen by nobody else", "[media][device]") {
    const OnSimulated server;
    const Client client = server.client(), other = server.client();
    at::Tensor cached = client.call<at::Tensor>("held_cached");
    CHECK(is_ramp(cached));
    cached.zero_();
    CHECK(is_ramp(other.call<at::Tensor>("held_cached")));
    const auto task = client.submit<at::Tensor>("held");
    at::Tensor result = client.task<at::Tensor>(task.id()).get();
    CHECK(is_ramp(result));
    result.zero_();
    CHECK(is_ramp(other.task<at::Tensor>(task.id()).get()));
}

TEST_CASE("A device that the other side does not see is not used", "[media][device]") {
    simulated::enable(2);
    const TransportServer server(kSimulated);
    const Client client = server.client();
    const at::Tensor there = ones();
    const at::Tensor nowhere = simulated::to_device(at::ones({kMany}, at::kFloat), 1);
    CHECK(client.call<bool>("lies_here", there));
    CHECK(!client.call<bool>("lies_here", nowhere));
    CHECK(client.call<double>("sum_later", nowhere, 0) == kMany);
}
