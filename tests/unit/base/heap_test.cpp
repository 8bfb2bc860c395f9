#include "base/memory/heap.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <new>
#include <vector>

#include "support/address_space.hpp"
#include "support/manual_clock.hpp"

using namespace shared_tensor;
using namespace shared_tensor::test;
using namespace std::chrono_literals;

namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
constexpr std::size_t kBlock = 4 * kMiB;

/// What went wrong with a reserve in a process that may map 64 MiB more than it has; 0 if nothing did.
int error_of_reserve() {
    keep_memory_reserve();
    if (!has_memory_reserve()) return 1;
    leave_room(::getpid(), 64 * kMiB);
    std::vector<std::unique_ptr<std::byte[]>> blocks;
    blocks.reserve(64);
    while (has_memory_reserve() && blocks.size() < 64)
        blocks.emplace_back(new std::byte[kBlock]);  // the one that has no room gets the reserve's
    if (blocks.size() == 64) return 2;
    if (has_memory_reserve()) return 3;  // it cannot be taken again yet
    try {
        while (blocks.size() < 64)
            blocks.emplace_back(new std::byte[kBlock]);
        return 4;
    } catch (const std::bad_alloc&) {
    }
    blocks.clear();
    return has_memory_reserve() ? 0 : 5;
}

}  // namespace

TEST_CASE("What has no room gets the reserve's, once, and the reserve comes back with room for it", "[util]") {
    if (!kAddressSpaceCanBeLimited) SKIP("a sanitizer needs address space of its own: it cannot be limited");
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        try {
            ::_exit(error_of_reserve());
        } catch (const std::exception&) {
            ::_exit(100);
        }
    }
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    REQUIRE(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 0);
}

TEST_CASE("the heap is trimmed once, five seconds after the last request, or when threads end though requests go on",
          "[util]") {
    ManualClock clock;
    int trims = 0;
    HeapTrimmer trimmer([&] { ++trims; });
    const struct {
        std::chrono::seconds later;
        HeapTrimmer::Load load;
        int trims;
    } table[] = {
        {100s, {0, 0}, 0},  {1s, {1, 1}, 0},    {4s, {2, 1}, 0},    {4s, {2, 1}, 0},
        {1s, {2, 1}, 1},    {100s, {2, 1}, 1},  {1s, {100, 50}, 1}, {1s, {200, 49}, 2},
        {1s, {300, 20}, 2}, {8s, {400, 20}, 2}, {1s, {500, 20}, 3}, {20s, {600, 20}, 3},
    };
    for (const auto& row : table) {
        clock.advance(row.later);
        trimmer.sweep(row.load, clock.now());
        INFO("after " << row.load.requests << " requests of " << row.load.threads << " threads");
        CHECK(trims == row.trims);
    }
}
