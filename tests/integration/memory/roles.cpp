// What second processes do. Hidden tests: run by class Role, not by the test runner.

#include <ATen/core/Tensor.h>
#include <ATen/ops/ones.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include <shared_tensor/client.hpp>
#include <shared_tensor/torch.hpp>

#include "support/address_space.hpp"

using namespace shared_tensor;

namespace {

Client server() {
    const char* url = std::getenv("TEST_URL");
    if (url == nullptr) SKIP("a role of a second process: the tests of this folder start it, with a daemon's address");
    return Client(std::string(url));
}

void come_so_far() { std::ofstream(std::getenv("TEST_READY")) << "ready"; }

[[noreturn]] void stay() {
    for (;;)
        ::pause();
}

}  // namespace

TEST_CASE("role: hold a thousand results", "[.][role]") {
    const Client client = server();
    std::vector<at::Tensor> held;
    for (int i = 0; i < 1000; ++i)
        held.push_back(client.call<at::Tensor>("ramp", 100));
    come_so_far();
    stay();
}

TEST_CASE("role: call with a large argument", "[.][role]") {
    const Client client = server();
    come_so_far();
    (void)client.call<double>("slow_sum", at::ones({1 << 22}), 5.0);
}

TEST_CASE("role: wait for a task", "[.][role]") {
    const Client client = server();
    const auto task = client.submit<double>("slow_sum", at::ones({1 << 22}), 5.0);
    come_so_far();
    (void)task.get();
}

TEST_CASE("role: call and let go until killed", "[.][role]") {
    const Client client = server();
    come_so_far();
    for (;;) {
        std::vector<at::Tensor> held;
        for (int i = 0; i < 20; ++i)
            held.push_back(client.call<at::Tensor>("scale", at::ones({1 << 14}), 2.0));
    }
}

TEST_CASE("role: ten thousand results come and go", "[.][role]") {
    const Client client = server();
    for (int i = 0; i < 10'000; ++i) {
        const auto size = 1000 + i % 7 * 1000;
        REQUIRE(client.call<at::Tensor>("ramp", size)[size - 1].item<float>() == static_cast<float>(size - 1));
    }
    come_so_far();
}

TEST_CASE("role: ask for a gigabyte without room for it", "[.][role]") {
    const Client client = server();
    const auto small = [&] { return client.call<at::Tensor>("ramp", 100)[99].item<float>() == 99; };
    REQUIRE(small());  // what a client needs in any case is there from now on
    test::leave_room(::getpid(), std::uint64_t{256} << 20);
    for (int round = 0; round < 3; ++round) {
        try {
            (void)client.call<at::Tensor>("held_ramp", 1 << 28);
            FAIL("there was room");
        } catch (const RpcError& error) {
            REQUIRE(error.is(ErrorCode::response_too_large));
            REQUIRE(std::string(error.what()).find("no room to map") != std::string::npos);
        }
        REQUIRE(small());
    }
    come_so_far();
    stay();
}
