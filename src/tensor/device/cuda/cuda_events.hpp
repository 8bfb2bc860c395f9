#pragma once

#include <cstring>
#include <map>
#include <optional>
#include <vector>

#include "base/concurrency/guarded.hpp"
#include "tensor/device/cuda/cuda_driver.hpp"
#include "tensor/device/ipc_device.hpp"

// Events between processes, and the events that mark the end of the work on an imported tensor.

namespace shared_tensor::tensor {

inline constexpr std::size_t kMaxEvents = 1000;  // interprocess events of a process: near the driver's own limit

/// An event that other processes can wait for. It is never destroyed: after use it returns to its pool.
struct SharedEvent {
    CUevent event = nullptr;
    IpcBytes bytes{};
};

class EventPool {
public:
    /// Takes a free event, or makes one on the current device, which must be `ordinal`. Returns nullopt if all events
    /// are in use.
    std::optional<SharedEvent> take(int ordinal) {
        bool make = false;
        auto taken = state_.with([&](State& state) -> std::optional<SharedEvent> {
            auto& free = state.free[ordinal];
            if (free.empty()) {
                make = state.made < kMaxEvents;
                state.made += make ? 1 : 0;
                return std::nullopt;
            }
            SharedEvent event = free.back();
            free.pop_back();
            return event;
        });
        if (taken || !make) return taken;
        try {
            return made();
        } catch (...) {
            state_.with([](State& state) { --state.made; });
            throw;
        }
    }
    void put_back(int ordinal, const SharedEvent& event) {
        state_.with([&](State& state) { state.free[ordinal].push_back(event); });
    }
    /// Finds an event of this process by its handle: a handle cannot be opened in the process that made it.
    std::optional<CUevent> find(const IpcBytes& bytes) const {
        return state_.with([&](const State& state) -> std::optional<CUevent> {
            const auto found = state.own.find(bytes);
            return found == state.own.end() ? std::nullopt : std::optional(found->second);
        });
    }

private:
    struct State {
        std::map<int, std::vector<SharedEvent>> free;
        std::map<IpcBytes, CUevent> own;
        std::size_t made = 0;
    };

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
        state_.with([&](State& state) { state.own.emplace(shared.bytes, shared.event); });
        return shared;
    }

    Guarded<State> state_;
};

class PooledEvent final : public DeviceEvent {
public:
    PooledEvent(EventPool& pool, int ordinal, const SharedEvent& shared)
        : pool_(&pool), ordinal_(ordinal), shared_(shared) {}
    PooledEvent(const PooledEvent&) = delete;
    PooledEvent& operator=(const PooledEvent&) = delete;
    ~PooledEvent() override { pool_->put_back(ordinal_, shared_); }
    const IpcBytes& bytes() const override { return shared_.bytes; }

private:
    EventPool* const pool_;
    const int ordinal_;
    const SharedEvent shared_;
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
