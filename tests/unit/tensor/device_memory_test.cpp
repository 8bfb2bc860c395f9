// Memory of devices between processes: the blocks of others that are open here, and those that were lent.

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <functional>
#include <latch>
#include <map>
#include <set>
#include <thread>

#include <shared_tensor/value.hpp>

#include "base/concurrency/guarded.hpp"
#include "support/daemon.hpp"
#include "support/tensors.hpp"
#include "tensor/device/ipc_handle_cache.hpp"
#include "tensor/device/lent_blocks.hpp"

using namespace shared_tensor;
using namespace shared_tensor::tensor;
using namespace shared_tensor::test;
using namespace std::chrono_literals;

namespace {

/// A device whose driver is a few counters: opens any handle, and says what would be wrong.
class FakeDevice final : public IpcDevice {
public:
    struct State {
        std::set<IpcBytes> open;
        std::map<std::byte*, IpcBytes> bases;
        std::uintptr_t next = 0x1000000;
        int opened = 0, closed = 0, opened_twice = 0, finished = 0;
    };
    mutable Guarded<State> state;
    std::function<void()> before_open = [] {};
    std::atomic<bool> rejects{false};

    static constexpr std::uint64_t kBytes = 4096;

    Viability viable() const override { return {}; }
    std::vector<DeviceInfo> devices() const override { return {{"FAKE-0", "fake", 1 << 20}}; }
    bool holds(const TensorRef&) const noexcept override { return false; }
    std::size_t index_of(const TensorRef&) const override { return 0; }
    DevicePlace place(const TensorRef&) const override { return {}; }
    IpcBytes export_block(const DevicePlace&) const override { return {}; }
    Opened open(std::size_t, const IpcBytes& handle, std::uint64_t) const override {
        before_open();
        if (rejects) throw DeviceRejected("no");
        return state.with([&](State& held) {
            held.opened_twice += held.open.insert(handle).second ? 0 : 1;
            ++held.opened;
            auto* base = reinterpret_cast<std::byte*>(held.next += 2 * kBytes);
            held.bases.emplace(base, handle);
            return Opened{base, kBytes};
        });
    }
    void close(std::size_t, std::byte* base) const noexcept override {
        state.with([&](State& held) {
            held.open.erase(held.bases.at(base));
            ++held.closed;
        });
    }
    DeviceEvent record(std::size_t) const override { return nullptr; }
    std::unique_ptr<DeviceUse> use(std::size_t, const IpcBytes*) const override {
        struct Use final : DeviceUse {
            explicit Use(const FakeDevice& the_device) : device(&the_device) {}
            void end() noexcept override {}
            void finish() noexcept override {
                device->state.with([](State& held) { ++held.finished; });
            }
            const FakeDevice* device;
        };
        return std::make_unique<Use>(*this);
    }
    TensorRef view(std::size_t, std::byte*, std::shared_ptr<const void>, DType, ShapeView, ShapeView) const override {
        return {};
    }
    TensorRef empty(std::size_t, DType, ShapeView) const override { return {}; }
    TensorRef copy(const TensorRef& tensor) const override { return tensor; }
    std::shared_ptr<std::byte> staging(std::size_t) const override { return {}; }
    std::unique_ptr<DeviceRead> start_read(const TensorRef&, std::byte*) const override { return {}; }
};

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
        : handles(device, {.linger = linger, .max_idle = max_idle}) {}

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

TEST_CASE("A block that threads want at once is never open twice, whether it lingers or not", "[devices]") {
    const auto linger = GENERATE(0ms, 600'000ms);
    Fixture all(linger);
    std::latch ready(8);
    all.device.before_open = [] { std::this_thread::sleep_for(1ms); };
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
    CHECK(all.handles.stats().borrowed == 1600);
    CHECK(all.state().opened_twice == 0);
    if (linger > 0ms) {
        CHECK(all.state().opened == 3);
    } else {
        REQUIRE(all.done_become(1600));
        CHECK(all.state().opened == all.state().closed);
    }
}

TEST_CASE("A handle of another generation is rejected while the old block is read, and opened anew afterwards",
          "[devices]") {
    Fixture all(10min);
    auto old = all.borrow(block(1, 1));
    CHECK_THROWS_AS(all.borrow(block(1, 2)), InvalidValue);
    old.owner.reset();
    // It lingers; its end is on its way through the thread.
    IpcHandleCache::Borrowed fresh;
    REQUIRE(eventually([&] {
        try {
            fresh = all.borrow(block(1, 2));
            return fresh.base != nullptr;
        } catch (const InvalidValue&) {
            return false;
        }
    }));
    CHECK(all.state().opened == 2);
    CHECK(all.state().closed == 1);
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

namespace {

/// A block of memory that was lent, and whether it is still there.
struct Lent {
    Exports exports;
    std::shared_ptr<const LentBlock> block =
        std::make_shared<const LentBlock>(zeros(DType::float32, {4}), IpcBytes{}, DevicePlace{}, nullptr, exports);
    std::weak_ptr<const LentBlock> seen = block;
};

}  // namespace

TEST_CASE("a block that was lent is kept until its reader has closed it, unless it has already", "[devices]") {
    Lent one, other, closed;
    const auto reader = watch_process(::getpid());
    DeferredFrees deferred_frees;
    const LentBlock* first = one.block.get();
    deferred_frees.keep(std::move(one.block), reader);
    deferred_frees.keep(std::move(other.block), reader);
    deferred_frees.sweep();
    CHECK(deferred_frees.use().blocks == 2);
    CHECK(deferred_frees.use().bytes == 32);
    deferred_frees.free(first);
    CHECK(one.seen.expired());
    CHECK_FALSE(other.seen.expired());
    deferred_frees.free(closed.block.get());  // while its lease ended
    deferred_frees.keep(std::move(closed.block), reader);
    CHECK(closed.seen.expired());
    CHECK(deferred_frees.use().blocks == 1);
}

TEST_CASE("a block that was lent is kept until its reader's process has ended, and if that cannot be watched",
          "[devices]") {
    TemporaryFolder folder;
    Child reader({"/bin/sleep", "60"}, {}, folder.file("out"), folder.file("err"));
    Lent lent, unwatched;
    DeferredFrees deferred_frees;
    deferred_frees.keep(std::move(lent.block), watch_process(reader.pid()));
    deferred_frees.keep(std::move(unwatched.block), nullptr);
    deferred_frees.sweep();
    CHECK_FALSE(lent.seen.expired());
    reader.signal(SIGKILL);
    reader.wait();
    deferred_frees.sweep();
    CHECK(lent.seen.expired());
    CHECK_FALSE(unwatched.seen.expired());
}
