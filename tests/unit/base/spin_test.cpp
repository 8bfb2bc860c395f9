#include "base/concurrency/spin.hpp"

#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <thread>

using namespace shared_tensor;

TEST_CASE("spinning finds what another thread does soon", "[util][spin]") {
    std::atomic<bool> ready{false};
    std::jthread peer([&] { ready.store(true); });
    while (!spin_until([&] { return ready.load(); })) {
    }
    CHECK(ready.load());
}

TEST_CASE("spinning ends by itself", "[util][spin]") {
    int looks = 0;
    CHECK_FALSE(spin_until([&] {
        ++looks;
        return false;
    }));
    CHECK(looks >= 2);
}

TEST_CASE("what is there already is found at once", "[util][spin]") {
    int looks = 0;
    CHECK(spin_until([&] { return ++looks == 1; }));
    CHECK(looks == 1);
}
