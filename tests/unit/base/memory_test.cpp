#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <limits>
#include <memory>
#include <new>
#include <thread>
#include <vector>

#include "base/memory/buffer_pool.hpp"
#include "base/memory/heap.hpp"
#include "support/manual_clock.hpp"
#include "support/process.hpp"

using namespace shared_tensor;
using namespace shared_tensor::test;
using namespace std::chrono_literals;

namespace {

constexpr std::size_t kKiB = 1024, kMiB = 1024 * kKiB;

std::uintptr_t address(const std::shared_ptr<PooledBuffer>& buffer) {
    return reinterpret_cast<std::uintptr_t>(buffer->data());
}

/// Keeps 1 MiB, and for `time` 8 MiB more.
BufferPool warm_pool(std::chrono::milliseconds time) {
    return BufferPool({.idle_bytes = kMiB, .warm_bytes = 8 * kMiB, .warm_for = time});
}

}  // namespace

TEST_CASE("a buffer is empty, aligned, writable to its end, and wastes a quarter at most if it is big",
          "[util][buffers]") {
    BufferPool pool;
    for (std::size_t wanted = 0; wanted < 40 * kMiB; wanted += 777 * kKiB) {
        INFO(wanted);
        const auto buffer = pool.take(wanted);
        CHECK(buffer->size() == 0);
        CHECK(buffer->capacity() >= wanted);
        CHECK((wanted < 3 * kMiB || buffer->capacity() <= wanted + wanted / 4));
        CHECK(address(buffer) % 64 == 0);
        buffer->resize(buffer->capacity());
        std::memset(buffer->data(), 1, buffer->capacity());
    }
    CHECK_THROWS_AS(pool.take(std::numeric_limits<std::size_t>::max()), std::bad_alloc);
    CHECK_THROWS_AS(pool.take(std::size_t{1} << 61), std::bad_alloc);
}

TEST_CASE("sizes of pools waste a quarter at most, a thirty-second of large ones", "[util][buffers]") {
    for (std::size_t wanted = 5 * kKiB; wanted < std::size_t{5} << 30; wanted += wanted / 50 + 1) {
        const std::size_t size = size_class(wanted);
        INFO(wanted << ", " << size);
        REQUIRE(size >= wanted);
        REQUIRE(size_class(size) == size);
        if (wanted > 2 * kMiB) REQUIRE(size - wanted <= wanted / (wanted > 256 * kMiB ? 32 : 4));
    }
}

TEST_CASE("a freed buffer is taken again, the one used last first, but no big one for a small wish",
          "[util][buffers]") {
    BufferPool pool;
    auto first = pool.take(kMiB), second = pool.take(kMiB);
    const auto warm = address(second);
    first.reset();
    second.reset();
    CHECK(pool.idle_bytes() == 2 * kMiB);
    const auto again = pool.take(kMiB);
    CHECK(address(again) == warm);
    CHECK(again->size() == 0);
    CHECK(pool.idle_bytes() == kMiB);
    pool.take(16 * kMiB).reset();
    CHECK(pool.take(2 * kMiB)->capacity() < 16 * kMiB);
}

TEST_CASE("unused buffers are bounded: those unused for longest go first", "[util][buffers]") {
    BufferPool pool({.idle_bytes = 2 * kMiB, .warm_bytes = 0});
    auto a = pool.take(kMiB), b = pool.take(kMiB), c = pool.take(kMiB);
    const auto newest = address(c);
    a.reset();
    b.reset();
    c.reset();
    CHECK(pool.idle_bytes() == 2 * kMiB);
    CHECK(address(pool.take(kMiB)) == newest);
    pool.take(4 * kMiB).reset();
    CHECK(pool.idle_bytes() == 2 * kMiB);
}

TEST_CASE("a buffer beyond the bound stays for a moment, with what is written then", "[util][buffers]") {
    BufferPool pool = warm_pool(std::chrono::hours(1));
    auto first = pool.take(4 * kMiB);
    const auto warm = address(first);
    std::memset(first->data(), 1, 4 * kMiB);
    first.reset();
    CHECK(pool.idle_bytes() == 4 * kMiB);
    auto again = pool.take(4 * kMiB);
    CHECK(address(again) == warm);
    std::memset(again->data(), 2, 4 * kMiB);
    CHECK(again->data()[kMiB] == std::byte{2});
}

TEST_CASE("what stays for a moment goes then", "[util][buffers]") {
    BufferPool pool = warm_pool(std::chrono::milliseconds(30));
    auto large = pool.take(4 * kMiB), small = pool.take(kMiB);
    small.reset();
    large.reset();
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (pool.idle_bytes() > 0 && std::chrono::steady_clock::now() < deadline)
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
    CHECK(pool.idle_bytes() == 0);  // the small one was unused for longer
}

TEST_CASE("buffers that stay for a moment are bounded too, and make room for a bigger one", "[util][buffers]") {
    BufferPool pool = warm_pool(std::chrono::hours(1));
    auto a = pool.take(4 * kMiB), b = pool.take(4 * kMiB), c = pool.take(4 * kMiB);
    a.reset();
    b.reset();
    c.reset();
    CHECK(pool.idle_bytes() == 8 * kMiB);
    pool.take(10 * kMiB).reset();
    CHECK(pool.idle_bytes() == 0);
    pool.take(4 * kMiB).reset();
    pool.take(kMiB).reset();
    CHECK(pool.idle_bytes() == 5 * kMiB);
    const auto bigger = pool.take(7 * kMiB);
    CHECK(pool.idle_bytes() == kMiB);
}

namespace {

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
    CHECK(error_in_child(&error_of_reserve) == 0);
}

TEST_CASE("the heap is trimmed five seconds after the last request, when threads end, and when memory is short",
          "[util]") {
    ManualClock clock;
    int trims = 0;
    HeapTrimmer trimmer([&] { ++trims; });
    const struct {
        std::chrono::seconds later;
        HeapTrimmer::Load load;
        int trims;
    } table[] = {
        {100s, {0, 0}, 0},  {1s, {1, 1}, 0},     {4s, {2, 1}, 0},          {4s, {2, 1}, 0},    {1s, {2, 1}, 1},
        {100s, {2, 1}, 1},  {1s, {100, 50}, 1},  {1s, {200, 49}, 2},       {1s, {300, 20}, 2}, {8s, {400, 20}, 2},
        {1s, {500, 20}, 3}, {20s, {600, 20}, 3}, {1s, {600, 20, true}, 4},
    };
    for (const auto& row : table) {
        clock.advance(row.later);
        trimmer.sweep(row.load, clock.now());
        INFO("after " << row.load.requests << " requests of " << row.load.threads << " threads");
        CHECK(trims == row.trims);
    }
}
