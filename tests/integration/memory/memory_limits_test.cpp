#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/mul.h>
#include <fcntl.h>
#include <sys/resource.h>

#include <catch2/catch_test_macros.hpp>
#include <optional>
#include <vector>

#include <shared_tensor/json.hpp>
#include <shared_tensor/tensor.hpp>

#include "integration/client/example_daemon.hpp"
#include "integration/memory/raw_channel.hpp"

using namespace shared_tensor;
using namespace shared_tensor::test;

namespace {

constexpr int kBig = 1 << 20;  // float32: 4 MiB

/// The reasons of -32006 for a result that must go by shm.
std::string refused(int port, const std::string& session) {
    const Json error =
        respond(port, "ramp", {kBig}, {{"Shared-Tensor-Session", session}, {"Shared-Tensor-Require", "shm"}})["error"];
    CHECK(error["code"] == -32006);
    return error["data"]["reasons"]["shm"];
}

Json shm_of(const Client& client) { return Json::parse(client.info().json)["totals"]["tensors"]["shm"]; }

}  // namespace

TEST_CASE("When the shared memory is full, results come as bytes, and go by memory again later", "[memory][limits]") {
    const ExampleDaemon server({"--max-shared-bytes", "9000000"});
    const Client client = server.client();
    const at::Tensor ramp = at::arange(kBig, at::kFloat);
    std::vector<at::Tensor> held;
    for (int i = 0; i < 5; ++i) {
        held.push_back(client.call<at::Tensor>("ramp", kBig));
        REQUIRE(at::equal(held.back(), ramp));
    }
    CHECK(shm_of(client)["tensors"] == 2);
    RawChannel channel(server.daemon.port());
    CHECK(refused(server.daemon.port(), channel.open()).find("--max-shared-bytes") != std::string::npos);
    held.clear();
    CHECK(eventually([&] {
        const auto before = shm_of(client)["tensors"].get<int>();
        REQUIRE(at::equal(client.call<at::Tensor>("ramp", kBig), ramp));
        return shm_of(client)["tensors"].get<int>() > before;
    }));
}

TEST_CASE("A client with as many leases as it may have gets bytes", "[memory][limits]") {
    const ExampleDaemon server({"--max-client-leases", "3"});
    const Client client = server.client(), other = server.client();
    std::vector<at::Tensor> held;
    for (int i = 0; i < 5; ++i)
        held.push_back(client.call<at::Tensor>("ramp", kBig));
    CHECK(shm_of(client)["tensors"] == 3);
    held.push_back(other.call<at::Tensor>("ramp", kBig));
    CHECK(shm_of(client)["tensors"] == 4);

    RawChannel channel(server.daemon.port());
    const std::string session = channel.open();
    const HeaderList headers{{"Shared-Tensor-Session", session}, {"Shared-Tensor-Accept", "shm"}};
    for (int i = 0; i < 3; ++i)
        (void)call(server.daemon.port(), "ramp", {kBig}, headers);
    CHECK(refused(server.daemon.port(), session).find("this client holds 3 leases") != std::string::npos);
}

TEST_CASE("There are at most so many leases in all", "[memory][limits]") {
    const ExampleDaemon server({"--max-leases", "3"});
    const Client one = server.client(), two = server.client();
    std::vector<at::Tensor> held;
    for (int i = 0; i < 3; ++i) {
        held.push_back(one.call<at::Tensor>("ramp", kBig));
        held.push_back(two.call<at::Tensor>("ramp", kBig));
    }
    CHECK(shm_of(one)["tensors"] == 3);
    RawChannel channel(server.daemon.port());
    CHECK(refused(server.daemon.port(), channel.open()).find("all clients together hold 3 leases") !=
          std::string::npos);
}

TEST_CASE("A daemon without a descriptor left sends bytes and goes on", "[memory][limits]") {
    rlimit before{};
    ::getrlimit(RLIMIT_NOFILE, &before);
    const rlimit few{48, before.rlim_max};
    ::setrlimit(RLIMIT_NOFILE, &few);
    std::optional<ExampleDaemon> server;
    server.emplace();
    ::setrlimit(RLIMIT_NOFILE, &before);
    const Client client = server->client();
    const at::Tensor ramp = at::arange(kBig, at::kFloat);
    std::vector<at::Tensor> held;
    for (int i = 0; i < 60; ++i) {
        held.push_back(client.call<at::Tensor>("ramp", kBig));
        REQUIRE(at::equal(held.back(), ramp));
    }
    const auto lent = shm_of(client)["tensors"].get<int>();
    CHECK(lent > 0);
    CHECK(lent < 60);
    held.clear();
    CHECK(eventually([&] { return Json::parse(client.info().json)["totals"]["shared_memory"]["leases"] == 0; }));
    CHECK(at::equal(client.call<at::Tensor>("scale", ramp, 2.0), at::mul(ramp, 2)));
}

TEST_CASE("A client without a descriptor left gets a clear error, and goes on once it has some", "[memory][limits]") {
    const ExampleDaemon server;
    const Client client = server.client();
    REQUIRE(client.call<at::Tensor>("ramp", kBig)[1].item<float>() == 1);
    std::vector<at::Tensor> held;
    {
        rlimit before{};
        ::getrlimit(RLIMIT_NOFILE, &before);
        const rlimit few{64, before.rlim_max};
        ::setrlimit(RLIMIT_NOFILE, &few);
        std::vector<UniqueFd> taken;
        for (;;) {
            UniqueFd fd(::open("/dev/null", O_RDONLY | O_CLOEXEC));
            if (!fd) break;
            taken.push_back(std::move(fd));
        }
        for (int i = 0; i < 3; ++i) {
            try {
                held.push_back(client.call<at::Tensor>("ramp", kBig));
            } catch (const std::exception& error) {
                CHECK(std::string(error.what()).size() > 10);
            }
        }
        taken.clear();
        ::setrlimit(RLIMIT_NOFILE, &before);
    }
    for (int i = 0; i < 3; ++i)
        CHECK(client.call<at::Tensor>("ramp", kBig)[7].item<float>() == 7);
}
