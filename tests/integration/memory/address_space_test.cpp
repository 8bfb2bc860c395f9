// Processes that may map little more than they do: whoever asks too much is told so, and nothing is left behind.

#include <ATen/core/Tensor.h>
#include <ATen/ops/ones.h>

#include <catch2/catch_test_macros.hpp>
#include <functional>
#include <string>

#include <shared_tensor/json.hpp>
#include <shared_tensor/tensors.hpp>
#include <shared_tensor/torch.hpp>

#include "integration/client/example_daemon.hpp"
#include "support/address_space.hpp"
#include "support/role.hpp"

using namespace shared_tensor;
using namespace shared_tensor::test;

namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
constexpr std::uint64_t kRoom = 256 * kMiB;
constexpr int kFits = 1 << 24, kTooMany = 1 << 27;  // float32: 64 and 512 MiB

void skip_where_it_cannot_be_limited() {
    if (!kAddressSpaceCanBeLimited) SKIP("a sanitizer needs address space of its own: it cannot be limited");
}

nlohmann::json totals_of(const Client& client) { return nlohmann::json::parse(client.info().json)["totals"]; }

/// The code of the error; 0 without one.
int code_of(const std::function<void()>& call) {
    try {
        call();
        return 0;
    } catch (const RpcError& error) {
        return error.code();
    }
}

/// A daemon that has served calls of all kinds, and has little room from then on. It has one arena of malloc: another
/// one takes 64 MiB of address space whenever two threads ask for memory at once.
struct TightDaemon {
    explicit TightDaemon(const Words& options = {}) : server(options, {"MALLOC_ARENA_MAX=1"}), client(server.client()) {
        fits();
        (void)client.call<at::Tensor>("scaled_ramp", 100);
        leave_room(server.daemon.child().pid(), kRoom);
    }

    /// Whether a result and an argument of a quarter of the room go through.
    bool fits() const {
        const auto ramp = client.call<at::Tensor>("ramp", kFits);
        return ramp[kFits - 1].item<float>() == kFits - 1 &&
               client.call<double>("slow_sum", ramp.slice(0, 0, 8), 0.0) == 28;
    }
    std::uint64_t address_space() { return address_space_of(server.daemon.child().pid()); }

    ExampleDaemon server;
    Client client;
};

}  // namespace

TEST_CASE("A client without room for a tensor is told so, leaves no lease behind and goes on", "[memory][limits]") {
    skip_where_it_cannot_be_limited();
    const ExampleDaemon server;
    const Client watching = server.client();
    Role role("ask for a gigabyte without room for it", {"TEST_URL=" + server.url()});
    const bool came_so_far = role.ready();
    INFO(role.out());
    REQUIRE(came_so_far);
    CHECK(eventually([&] { return totals_of(watching)["shared_memory"]["leases"] == 0; }));
}

TEST_CASE("A daemon without room for a result says so, and has as much as before for the next", "[memory][limits]") {
    skip_where_it_cannot_be_limited();
    TightDaemon tight;
    const std::uint64_t before = tight.address_space();
    for (const char* function : {"ramp", "scaled_ramp"}) {  // memory that is shared; ordinary memory
        CAPTURE(function);
        for (int round = 0; round < 5; ++round) {
            CHECK(code_of([&] { (void)tight.client.call<at::Tensor>(function, kTooMany); }) == -32008);
            REQUIRE(tight.fits());
        }
    }
    CHECK(eventually([&] { return totals_of(tight.client)["shared_memory"]["leases"] == 0; }));
    CHECK(tight.address_space() < before + kRoom / 2);
}

TEST_CASE("A daemon without room for an argument says so and goes on", "[memory][limits]") {
    skip_where_it_cannot_be_limited();
    TightDaemon tight;
    const at::Tensor large = at::ones({kTooMany});
    for (int round = 0; round < 3; ++round) {
        CHECK(code_of([&] { (void)tight.client.call<double>("slow_sum", large, 0.0); }) == -32008);
        REQUIRE(tight.fits());
    }
}

TEST_CASE("A daemon without room for a named tensor says so, and the version of before stays", "[memory][limits]") {
    skip_where_it_cannot_be_limited();
    TightDaemon tight;
    const NamedTensors tensors(tight.client);
    const std::uint64_t version = tensors.put("weights", at::ones({1000})).version;
    const at::Tensor large = at::ones({kTooMany});
    for (int round = 0; round < 3; ++round) {
        CHECK(code_of([&] { (void)tensors.put("weights", large); }) == -32008);
        CHECK(tensors.get("weights").version() == version);
        REQUIRE(tight.fits());
    }
}

TEST_CASE("A daemon without room for the bytes of a request is busy, and goes on", "[memory][limits]") {
    skip_where_it_cannot_be_limited();
    TightDaemon tight({"--local-socket", "none"});
    ClientOptions options;
    options.url = tight.server.url();
    options.retry = no_retry();
    const Client client(options);
    const at::Tensor large = at::ones({kTooMany});
    CHECK(code_of([&] { (void)client.call<double>("slow_sum", large, 0.0); }) == -32001);
    CHECK(code_of([&] { (void)NamedTensors(client).put("weights", large); }) == -32001);
    CHECK(tight.fits());
}
