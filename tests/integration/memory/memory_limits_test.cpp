#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/mul.h>
#include <fcntl.h>
#include <sys/resource.h>

#include <catch2/catch_test_macros.hpp>
#include <set>
#include <string>
#include <vector>

#include <shared_tensor/json.hpp>
#include <shared_tensor/torch.hpp>

#include "integration/client/example_daemon.hpp"
#include "integration/memory/raw_channel.hpp"
#include "support/descriptors.hpp"

using namespace shared_tensor;
using namespace shared_tensor::test;

namespace {

constexpr int kBig = 1 << 20;  // float32: 4 MiB

/// The error of a result that must go by shm.
Json error_of_shm(int port, const std::string& session) {
    return respond(port, "ramp", {kBig},
                   {{"Shared-Tensor-Session", session}, {"Shared-Tensor-Require", "shm"}})["error"];
}
std::string busy(int port, const std::string& session) {
    const Json error = error_of_shm(port, session);
    CHECK(error["code"] == -32001);
    return error["data"]["detail"];
}
std::string rejected(int port, const std::string& session) {
    const Json error = error_of_shm(port, session);
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
    CHECK(rejected(server.daemon.port(), channel.open()).find("--max-shared-bytes") != std::string::npos);
    held.clear();
    CHECK(eventually([&] {
        const auto before = shm_of(client)["tensors"].get<int>();
        REQUIRE(at::equal(client.call<at::Tensor>("ramp", kBig), ramp));
        return shm_of(client)["tensors"].get<int>() > before;
    }));
}

TEST_CASE("A client with as many leases as it may have gets bytes", "[memory][limits]") {
    const ExampleDaemon server({"--max-leases", "6"});  // three of one client
    const Client client = server.client(), other = server.client();
    std::vector<at::Tensor> held;
    for (int i = 0; i < 5; ++i)
        held.push_back(client.call<at::Tensor>("ramp", kBig));
    CHECK(shm_of(client)["tensors"] == 3);
    held.push_back(other.call<at::Tensor>("ramp", kBig));
    CHECK(shm_of(client)["tensors"] == 4);

    const ExampleDaemon unused({"--max-leases", "6"});
    RawChannel channel(unused.daemon.port());
    const std::string session = channel.open();
    for (int i = 0; i < 3; ++i)
        (void)call(unused.daemon.port(), "ramp", {kBig}, by_memory(session));
    CHECK(rejected(unused.daemon.port(), session).find("this client holds 3 leases") != std::string::npos);
}

TEST_CASE("There are at most so many segments, and what there is too much of is named", "[memory][limits]") {
    const ExampleDaemon server({"--max-segments", "8"});
    const int port = server.daemon.port();
    RawChannel channel(port);
    const std::string session = channel.open();
    for (int i = 0; i < 4; ++i)
        (void)call(port, "ramp", {kBig}, by_memory(session));
    CHECK(busy(port, session).find("--max-segments") != std::string::npos);
    const Client client = server.client();
    CHECK(client.call<at::Tensor>("ramp", kBig)[7].item<float>() == 7);  // as bytes
}

TEST_CASE("Small tensors share segments: a client holds more of them than there are descriptors", "[memory][limits]") {
    const ExampleDaemon server({"--max-segments", "64"});
    const int port = server.daemon.port();
    RawChannel channel(port);
    const HeaderList headers = by_memory(channel.open());
    std::set<std::string> places;
    std::string segment;
    for (int i = 0; i < 1'100; ++i) {
        const Json tensor = call(port, "scaled_ramp", {100, i}, headers)["$tensor"];
        segment = tensor["shm"]["segment"];
        places.insert(segment + ':' + std::to_string(tensor["shm"]["offset"].get<int>()));
    }
    CHECK(places.size() == 1'100);
    const Json memory = call(port, "server.info")["totals"]["shared_memory"];
    CHECK(memory["leases"] == 1'100);
    CHECK(memory["segments"].get<int>() < 32);
    const Json got = channel.ask("segment.get", {{"segment", segment}});
    CHECK(got["result"]["size"] == 65'536);
    REQUIRE(channel.descriptors.size() == 1);
}

TEST_CASE("Ten clients hold as many leases as there may be: a hundred thousand", "[memory][limits]") {
    const ExampleDaemon server;
    const int port = server.daemon.port();
    Json batch = Json::array();
    for (int i = 0; i < 1'000; ++i)
        batch.push_back(call_object("scaled_ramp", {100, i}, i));
    const std::string calls = batch.dump();
    std::vector<RawChannel> channels;
    for (int i = 0; i < 10; ++i) {
        const std::string session = channels.emplace_back(port).open();
        for (int j = 0; j < 10; ++j)
            post(port, calls, {{"Shared-Tensor-Session", session}, {"Shared-Tensor-Require", "shm"}});
    }
    const Json memory = call(port, "server.info")["totals"]["shared_memory"];
    CHECK(memory["leases"] == 100'000);
    CHECK(memory["segments"].get<int>() < 1'000);
    const std::string reason = busy(port, channels.emplace_back(port).open());
    CHECK(reason.find("all clients together hold 100000 leases") != std::string::npos);
    channels.clear();
    CHECK(eventually([&] { return call(port, "server.info")["totals"]["shared_memory"]["leases"] == 0; }));
}

TEST_CASE("Small results in one segment keep their values, and what is written to one shows in no other",
          "[memory][limits]") {
    const ExampleDaemon server;
    const Client client = server.client();
    const Client remote = client.with({.require = "shm"});
    std::vector<at::Tensor> held;
    for (int i = 0; i < 100; ++i) {
        held.push_back(remote.call<at::Tensor>("scaled_ramp", 100, static_cast<double>(i)));
        held.back()[0] = -1.0;
    }
    for (int i = 0; i < 100; ++i) {
        const at::Tensor& one = held[static_cast<std::size_t>(i)];
        CHECK(one[0].item<double>() == -1);
        CHECK(one[99].item<double>() == 99.0 * i);
    }
    CHECK(Json::parse(client.info().json)["totals"]["shared_memory"]["segments"].get<int>() < 10);
}

TEST_CASE("A daemon without a descriptor left sends bytes and goes on", "[memory][limits]") {
    ExampleDaemon server;
    const Client client = server.client();
    (void)client.call<at::Tensor>("ramp", kBig);
    const pid_t pid = server.daemon.child().pid();
    const auto count = static_cast<rlim_t>(Descriptors(pid).all());
    const rlimit few{count + 12, count + 12};  // the daemon has bounded nothing by it
    REQUIRE(::prlimit(pid, RLIMIT_NOFILE, &few, nullptr) == 0);
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
