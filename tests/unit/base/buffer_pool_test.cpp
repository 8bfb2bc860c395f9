#include "base/memory/buffer_pool.hpp"

#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <limits>
#include <new>
#include <thread>
#include <vector>

using namespace shared_tensor;

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
