#include "base/concurrency/spin.hpp"

#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <thread>

using namespace shared_tensor;

TEST_CASE("spinning finds what another thread does soon, at once what is there, and ends by itself", "[util][spin]") {
    std::atomic<bool> ready{false};
    std::jthread peer([&] { ready.store(true); });
    while (!spin_until([&] { return ready.load(); })) {
    }
    int looks = 0;
    CHECK(spin_until([&] { return ++looks == 1; }));
    CHECK(looks == 1);
    CHECK_FALSE(spin_until([&] { return ++looks == 0; }));
    CHECK(looks >= 3);
}
