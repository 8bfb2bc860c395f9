#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstring>
#include <map>
#include <memory>
#include <new>
#include <optional>
#include <set>
#include <utility>

#include "base/concurrency/guarded.hpp"
#include "base/log/log.hpp"
#include "tensor/device/cuda/cuda_device.hpp"
#include "tensor/device/cuda/cuda_driver.hpp"

// What takes the driver long to make, and is kept for reuse: events between processes, pinned host memory, GPU memory.
// Thread safety: all methods from any thread. And the use of memory of another process.

namespace shared_tensor::tensor {

/// Idle things by their kind, and a limit of the things of one kind that are made; they are never destroyed.
template <class Kind, class Thing>
class BoundedPool {
public:
    explicit BoundedPool(std::size_t most) : most_(most) {}

    /// Takes an idle thing, or the result of `make`, whose exceptions are passed on. Nullopt if `most` of this kind are
    /// made and none is idle.
    template <class Make>
    std::optional<Thing> take(const Kind& kind, Make make) {
        bool may_make = false;
        std::optional<Thing> idle = state_.with([&](State& state) -> std::optional<Thing> {
            if (const auto found = state.idle.find(kind); found != state.idle.end())
                return state.idle.extract(found).mapped();
            std::size_t& made = state.made[kind];
            may_make = made < most_;
            made += may_make ? 1 : 0;
            return std::nullopt;
        });
        if (!may_make) return idle;
        try {
            return make();
        } catch (...) {
            state_.with([&](State& state) { --state.made[kind]; });
            throw;
        }
    }
    void put_back(const Kind& kind, Thing thing) {
        state_.with([&](State& state) { state.idle.emplace(kind, std::move(thing)); });
    }

private:
    struct State {
        std::multimap<Kind, Thing> idle;
        std::map<Kind, std::size_t> made;
    };
    const std::size_t most_;
    Guarded<State> state_;
};

/// An event that other processes can wait for.
struct SharedEvent {
    CUevent event = nullptr;
    IpcBytes bytes{};
};

class EventPool {
public:
    /// Records an event of the current device, which must be `ordinal`. Null if all events are in use. The pool must
    /// outlive the result.
    DeviceEvent record(int ordinal) {
        const auto taken = events_.take(ordinal, [&] { return made(); });
        if (!taken) return nullptr;
        DeviceEvent pooled(new IpcBytes(taken->bytes), [this, ordinal, shared = *taken](const IpcBytes* bytes) {
            delete bytes;
            quietly("an event", [&] { events_.put_back(ordinal, shared); });
        });
        check(driver().cuEventRecord(taken->event, kStream), "the event cannot be recorded");
        return pooled;
    }
    /// Finds an event of this process by its handle: a handle cannot be opened in the process that made it.
    std::optional<CUevent> find(const IpcBytes& bytes) const {
        return own_.with([&](const auto& own) -> std::optional<CUevent> {
            const auto found = own.find(bytes);
            return found == own.end() ? std::nullopt : std::optional(found->second);
        });
    }

private:
    static constexpr std::size_t kMost = 1000;  // of a process: near the driver's own limit. Each GPU has its share

    /// Makes an event on the current device.
    SharedEvent made() {
        SharedEvent shared;
        check(driver().cuEventCreate(&shared.event, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING),
              "no event for another process");
        CUipcEventHandle handle{};
        if (const auto error = driver().cuIpcGetEventHandle(&handle, shared.event); error != CUDA_SUCCESS) {
            (void)driver().cuEventDestroy(shared.event);
            check(error, "the event cannot be shared");
        }
        static_assert(sizeof handle == sizeof shared.bytes);
        std::memcpy(shared.bytes.data(), &handle, sizeof handle);
        own_.with([&](auto& own) { own.emplace(shared.bytes, shared.event); });
        return shared;
    }

    BoundedPool<int, SharedEvent> events_{kMost / std::max<std::size_t>(1, cuda_cards().count)};
    Guarded<std::map<IpcBytes, CUevent>> own_;
};

/// Pinned host memory, to which a device copies asynchronously.
class PinnedMemory {
public:
    /// Returns null if no piece is left, or if no memory can be pinned.
    std::shared_ptr<std::byte> take(std::size_t bytes) {
        try {
            const auto taken = pieces_.take(bytes, [&] { return made(bytes); });
            if (!taken) return nullptr;
            return {static_cast<std::byte*>(*taken), [this, bytes](std::byte* data) {
                        quietly("pinned memory", [&] { pieces_.put_back(bytes, data); });
                    }};
        } catch (const std::exception& error) {
            if (!has_warned_.exchange(true))
                log::warn("no memory can be pinned, so reads of the GPU are slow: ", error.what());
            return nullptr;
        }
    }

private:
    /// Allocates in the context of any GPU: all GPUs can access portable pinned memory.
    static void* made(std::size_t bytes) {
        void* memory = nullptr;
        const OnDevice on(cuda_cards().usable.at(0).ordinal);
        check(driver().cuMemHostAlloc(&memory, bytes, CU_MEMHOSTALLOC_PORTABLE), "cuMemHostAlloc");
        return memory;
    }

    BoundedPool<std::size_t, void*> pieces_{64};
    std::atomic<bool> has_warned_{false};
};

/// Allocates GPU memory for copies of tensors. Freed memory is reused, in the order of the default stream, because the
/// driver takes long to allocate memory and stops the device to free it.
class CudaMemory {
public:
    /// Adds a function that is called when no memory is left: it returns cached memory of a framework to the driver.
    void on_shortage(ReleaseMemory release) {
        releases_.with([&](auto& all) { all.insert(release); });
    }

    /// Allocates `bytes`, more than 0. The last copy of the result returns the memory to this object, which must
    /// outlive it. Throws std::bad_alloc, DeviceRejected.
    std::shared_ptr<std::byte> take(int ordinal, std::size_t bytes) {
        const std::size_t size = rounded(bytes);
        CUdeviceptr memory = reused(ordinal, size);
        const OnDevice on(ordinal);
        if (memory == 0) memory = made(ordinal, size);
        return {pointer(memory), [this, ordinal, size](std::byte* data) {
                    quietly("memory of a GPU", [&] { give_back(ordinal, size, address(data)); });
                }};
    }

private:
    struct Idle {
        std::multimap<std::size_t, CUdeviceptr> blocks;
        std::size_t bytes = 0;
    };
    static constexpr std::size_t kMaxIdleBytes = std::size_t{256} << 20;  // per device

    /// Rounds up to whole pieces of the driver. The driver puts smaller blocks together into one piece, and a process
    /// that opens one block can access the whole piece.
    static std::size_t rounded(std::size_t bytes) {
        constexpr std::size_t kPiece = std::size_t{2} << 20;
        return (bytes + kPiece - 1) / kPiece * kPiece;
    }
    /// The device's context must be current.
    CUdeviceptr made(int ordinal, std::size_t size) {
        CUdeviceptr memory = 0;
        auto error = driver().cuMemAlloc(&memory, size);
        if (error == CUDA_ERROR_OUT_OF_MEMORY) {
            free_idle(ordinal);
            for (const ReleaseMemory release : releases_.with([](const auto& all) { return all; }))
                quietly("memory of a GPU", release);
            error = driver().cuMemAlloc(&memory, size);
        }
        if (error == CUDA_ERROR_OUT_OF_MEMORY) throw std::bad_alloc();
        check(error, "the device gives no memory");
        return memory;
    }
    CUdeviceptr reused(int ordinal, std::size_t size) {
        return idle_.with([&](auto& devices) -> CUdeviceptr {
            Idle& idle = devices[ordinal];
            const auto found = idle.blocks.find(size);
            if (found == idle.blocks.end()) return 0;
            idle.bytes -= size;
            return idle.blocks.extract(found).mapped();
        });
    }
    void give_back(int ordinal, std::size_t size, CUdeviceptr memory) {
        const bool kept = idle_.with([&](auto& devices) {
            Idle& idle = devices[ordinal];
            if (idle.bytes + size > kMaxIdleBytes) return false;
            idle.blocks.emplace(size, memory);
            idle.bytes += size;
            return true;
        });
        if (kept) return;
        const OnDevice on(ordinal);
        check(driver().cuMemFree(memory), "cuMemFree");
    }
    /// The device's context must be current.
    void free_idle(int ordinal) {
        const Idle idle = idle_.with([&](auto& devices) { return std::exchange(devices[ordinal], {}); });
        for (const auto& [size, memory] : idle.blocks)
            (void)driver().cuMemFree(memory);
    }

    Guarded<std::map<int, Idle>> idle_;
    Guarded<std::set<ReleaseMemory>> releases_;
};

/// Waits for the default stream at its end. The holder of the last tensor has ordered that stream after its own
/// streams.
class CudaUse final : public DeviceUse {
public:
    CudaUse(int ordinal, CUevent imported) : ordinal_(ordinal), imported_(imported) {}
    CudaUse(const CudaUse&) = delete;
    CudaUse& operator=(const CudaUse&) = delete;
    ~CudaUse() override {
        quietly("the end of an imported tensor", [&] {
            if (imported_ == nullptr && done_ == nullptr) return;
            const OnDevice on(ordinal_);
            for (const CUevent event : {imported_, done_})
                if (event != nullptr) (void)driver().cuEventDestroy(event);
        });
    }

    void end() noexcept override {
        quietly("the end of an imported tensor", [&] {
            const OnDevice on(ordinal_);
            CUevent event = nullptr;
            check(driver().cuEventCreate(&event, CU_EVENT_DISABLE_TIMING | CU_EVENT_BLOCKING_SYNC), "no event");
            if (const auto error = driver().cuEventRecord(event, kStream); error != CUDA_SUCCESS) {
                (void)driver().cuEventDestroy(event);
                check(error, "the event cannot be recorded");
            }
            done_ = event;
        });
    }
    /// If end() got no event, this waits for all work on the default stream: after it the block is closed, and its
    /// memory may be freed.
    void finish() noexcept override {
        quietly("the end of an imported tensor", [&] {
            const OnDevice on(ordinal_);
            check(done_ != nullptr ? driver().cuEventSynchronize(done_) : driver().cuStreamSynchronize(kStream),
                  "the device");
        });
    }

private:
    const int ordinal_;
    const CUevent imported_;
    CUevent done_ = nullptr;
};

}  // namespace shared_tensor::tensor
