// Leases that end before their readers have done: the memory is nobody else's as long as they may read it.

#include <ATen/ops/arange.h>

#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <map>
#include <stop_token>
#include <thread>

#include <shared_tensor/simulated.hpp>
#include <shared_tensor/torch.hpp>

#include "media.hpp"

using namespace shared_tensor;
using namespace shared_tensor::test;

namespace {

const Words kConfirmSoon{"TEST_CONFIRM_WITHIN_MS=500"};

Json leases_of(const Client& client) { return client.call<Json>("lease.list")["leases"]; }

/// All that there are; how many they were.
int revoke_all(const Client& client) {
    Json ids = Json::array();
    for (const Json& lease : leases_of(client))
        ids.push_back(lease["id"]);
    return client.call<Json>("lease.revoke", ids)["leases"];
}

/// The result of `call`. It is made again if its lease ended before it was opened, as may be on a busy machine; `tries`
/// counts the calls.
template <class Call>
at::Tensor opened_in_time(const Call& call, int& tries) {
    at::Tensor result;
    REQUIRE(eventually([&] {
        try {
            ++tries;
            result = call();
        } catch (const TensorExpired&) {
            return false;
        }
        return true;
    }));
    return result;
}

/// Results of the same size, with other numbers in them: they would lie where memory came free.
void make_others(const Client& client, const char* place) {
    const at::Tensor x = put(at::arange(kMany, at::kFloat), place);
    int tries = 0;
    for (int i = 0; i < 20; ++i) {
        const at::Tensor y = opened_in_time([&] { return client.call<at::Tensor>("doubled_in_place", x); }, tries);
        REQUIRE(y.cpu()[1].item<float>() == 2);
    }
}

/// Nothing of the server's simulated devices is left, and nothing undefined was done to them.
void check_all_freed(const Client& client) {
    CHECK(leases_become(client, 0));
    CHECK(deferred_frees_become(client, 0));
    std::map<std::string, std::uint64_t> counts;
    CHECK(eventually([&] {
        counts = counts_of(client);
        return counts.at("allocations") == 0 && counts.at("events") == 0;
    }));
    CHECK(counts.at("undefined") == 0);
}

}  // namespace

TEST_CASE("The tensor of a revoked lease stays as it is until its reader lets it go", "[media][leases]") {
    const Connected here({"body"});
    const Client other = here.server.client();
    auto held = here.client.call<at::Tensor>("numbers", kMany);
    CHECK(revoke_all(other) == 1);
    CHECK(leases_of(other).empty());
    CHECK(totals_of(other)["device_memory"]["deferred_frees"] == (here.transport.on_device() ? 1 : 0));
    make_others(here.client, here.transport.place);
    CHECK(is_ramp(held));
    held = at::Tensor();
    check_all_freed(other);
    CHECK(is_ramp(here.client.call<at::Tensor>("numbers", kMany)));
}

TEST_CASE("A lease that is not confirmed in time ends, and its reader reads on", "[media][leases]") {
    const Connected here({"body"}, kConfirmSoon);
    const Client other = here.server.client();
    int tries = 0;
    auto held = opened_in_time([&] { return here.client.call<at::Tensor>("numbers", kMany); }, tries);
    CHECK(leases_become(other, 0));
    CHECK(totals_of(other)["shared_memory"]["leases_expired"] == tries);
    CHECK(deferred_frees_become(other, here.transport.on_device() ? 1 : 0));
    make_others(other, here.transport.place);
    CHECK(is_ramp(held));
    CHECK_THROWS_AS(here.client.call<double>("sum_later", ref(held), 0), RpcError);
    // The client confirms it after all, in vain.
    std::this_thread::sleep_for(std::chrono::milliseconds(2'500));
    CHECK(leases_of(other).empty());
    CHECK(is_ramp(held));
    held = at::Tensor();
    check_all_freed(other);
}

TEST_CASE("Memory of revoked leases comes back with the process that read it", "[media][leases]") {
    const Connected here({"body"});
    Role holder = holding_client(here.server, here.transport, 3);
    REQUIRE(holder.ready());
    CHECK(revoke_all(here.client) == 3);
    CHECK(deferred_frees_become(here.client, here.transport.on_device() ? 3 : 0));
    holder.kill();
    CHECK(deferred_frees_become(here.client, 0));
    CHECK(is_ramp(here.client.call<at::Tensor>("held")));
}

TEST_CASE("Leases that are revoked while their readers let go leave nothing behind", "[media][leases]") {
    const Connected here({"body"});
    const Client other = here.server.client();
    int revoked = 0;
    bool has_failed = false;
    std::jthread revoking([&](const std::stop_token& stop) {
        while (!stop.stop_requested() && !has_failed) {
            try {
                revoked += revoke_all(other);
            } catch (const RpcError& error) {
                has_failed = !error.is(ErrorCode::unknown_or_expired);  // what all were released since
            }
        }
    });
    int wrong = 0;
    for (int round = 0; round < 500; ++round) {
        try {
            if (!is_ramp(here.client.call<at::Tensor>("numbers", 20'000), 20'000)) ++wrong;
        } catch (const TensorExpired&) {
            continue;  // revoked before it was mapped
        }
    }
    revoking.request_stop();
    revoking.join();
    CHECK_FALSE(has_failed);
    CHECK(wrong == 0);
    CHECK(revoked > 0);
    check_all_freed(other);
}
