#include "tensor/device/ipc_handle_cache.hpp"

#include <catch2/catch_test_macros.hpp>
#include <latch>
#include <thread>

#include <shared_tensor/value.hpp>

#include "fake_device.hpp"

using namespace shared_tensor;
using namespace shared_tensor::tensor;
using namespace shared_tensor::test;
using namespace std::chrono_literals;

namespace {

IpcHandleCache::Block block(unsigned char name, std::uint64_t generation = 1, std::uint64_t owner = 1) {
    IpcHandleCache::Block made;
    made.handle[0] = std::byte{name};
    made.generation = generation;
    made.owner = owner;
    return made;
}

/// Openings of a fake device, and how many of their readers were done with.
struct Fixture {
    explicit Fixture(std::chrono::milliseconds linger = 0ms, std::size_t max_idle = 8)
        : handles(device, {linger, max_idle, 5s}) {}

    IpcHandleCache::Borrowed borrow(const IpcHandleCache::Block& wanted) {
        return handles.borrow(wanted, device.use(0, nullptr), [this] {
            done.with([](int& count) { ++count; });
            done.notify_all();
        });
    }
    /// Blocks until so many are done.
    bool done_become(int count) {
        auto held = done.lock();
        return held.wait_until(std::chrono::steady_clock::now() + 20s, [&](int now) { return now >= count; });
    }
    bool closed_become(int count) {
        const auto end = std::chrono::steady_clock::now() + 20s;
        while (device.state.with([](auto& state) { return state.closed; }) < count) {
            if (std::chrono::steady_clock::now() > end) return false;
            std::this_thread::yield();
        }
        return true;
    }
    FakeDevice::State state() {
        return device.state.with([](auto& held) { return held; });
    }

    FakeDevice device;
    Guarded<int> done{0};
    IpcHandleCache handles;
};

}  // namespace

TEST_CASE("A block is opened once however many read it, and closed when the last has gone", "[devices]") {
    Fixture all;
    auto first = all.borrow(block(1));
    auto second = all.borrow(block(1));
    CHECK(first.base == second.base);
    CHECK(all.state().opened == 1);
    first.owner.reset();
    REQUIRE(all.done_become(1));
    CHECK(all.state().closed == 0);
    second.owner.reset();
    REQUIRE(all.done_become(2));
    CHECK(all.state().closed == 1);
    CHECK(all.state().finished == 2);
    CHECK(all.handles.stats().open == 0);
}

TEST_CASE("The last reader is done only when the block is closed", "[devices]") {
    Fixture all(10min);
    all.borrow(block(1)).owner.reset();
    auto again = all.borrow(block(1));  // the lease of the first is given back now
    REQUIRE(all.done_become(1));
    CHECK(all.state().opened == 1);
    CHECK(all.state().closed == 0);
    again.owner.reset();
    all.handles.forget(1);
    REQUIRE(all.done_become(2));
    CHECK(all.state().closed == 1);
}

TEST_CASE("Threads that want the same block open it once", "[devices]") {
    Fixture all(10min);
    std::latch ready(8);
    all.device.before_open = [] { std::this_thread::sleep_for(5ms); };
    {
        std::vector<std::jthread> threads;
        for (int i = 0; i < 8; ++i) {
            threads.emplace_back([&] {
                ready.arrive_and_wait();
                for (int round = 0; round < 200; ++round)
                    all.borrow(block(static_cast<unsigned char>(round % 3)));
            });
        }
    }
    CHECK(all.state().opened == 3);
    CHECK(all.state().opened_twice == 0);
    CHECK(all.handles.stats().borrowed == 1600);
}

TEST_CASE("Opening and closing in turns never has a block open twice", "[devices]") {
    Fixture all;
    {
        std::vector<std::jthread> threads;
        for (int i = 0; i < 4; ++i) {
            threads.emplace_back([&] {
                for (int round = 0; round < 300; ++round)
                    all.borrow(block(1));
            });
        }
    }
    REQUIRE(all.done_become(1200));
    CHECK(all.state().opened_twice == 0);
    CHECK(all.state().opened == all.state().closed);
}

TEST_CASE("A handle of another generation is rejected while the old block is read, and opened anew afterwards",
          "[devices]") {
    Fixture all(10min);
    auto old = all.borrow(block(1, 1));
    CHECK_THROWS_AS(all.borrow(block(1, 2)), InvalidValue);
    old.owner.reset();
    // It lingers; its end is on its way through the thread.
    IpcHandleCache::Borrowed fresh;
    for (int i = 0; fresh.base == nullptr && i < 1000; ++i) {
        try {
            fresh = all.borrow(block(1, 2));
        } catch (const InvalidValue&) {
            std::this_thread::sleep_for(1ms);
        }
    }
    REQUIRE(fresh.base != nullptr);
    CHECK(all.state().opened == 2);
    CHECK(all.state().closed == 1);
}

TEST_CASE("What cannot be opened is not remembered", "[devices]") {
    Fixture all;
    all.device.rejects = true;
    CHECK_THROWS_AS(all.borrow(block(1)), InvalidValue);
    CHECK(all.handles.stats().open == 0);
    all.device.rejects = false;
    CHECK(all.borrow(block(1)).base != nullptr);
}

TEST_CASE("More idle blocks than the limit are closed, the longest unused first", "[devices]") {
    Fixture all(10min, 2);
    for (unsigned char i = 1; i <= 5; ++i)
        all.borrow(block(i));
    REQUIRE(all.closed_become(3));
    REQUIRE(all.done_become(3));
    const auto state = all.state();
    CHECK(state.open == std::set{block(4).handle, block(5).handle});
}

TEST_CASE("The blocks of an owner who is gone are closed as soon as nothing reads them", "[devices]") {
    Fixture all(10min);
    auto read = all.borrow(block(1, 1, 7));
    all.borrow(block(2, 1, 7));
    all.borrow(block(3, 1, 8));
    all.handles.forget(7);
    REQUIRE(all.done_become(1));
    CHECK(all.handles.contains(read.base + 100));
    read.owner.reset();
    REQUIRE(all.done_become(2));
    CHECK(!all.handles.contains(read.base + 100));
    CHECK(all.state().open == std::set{block(3).handle});
}
