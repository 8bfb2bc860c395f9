#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstring>
#include <map>
#include <optional>
#include <vector>

#include "tensor/cuda/cuda_call.hpp"
#include "tensor/devices/ipc_device.hpp"
#include "util/guarded.hpp"

// Events: those that cross between processes, and those that say when an imported tensor is done with.

namespace shared_tensor::tensor {

inline constexpr std::size_t kMaxEvents = 1000;  // interprocess events of a process; the driver has not many more

/// An event that other processes can wait for; back to its pool, never destroyed while there is one.
struct SharedEvent {
    cudaEvent_t event = nullptr;
    IpcBytes bytes{};
};

class EventPool {
public:
    /// Nothing when all are in use.
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
    /// One of this process's own: it cannot be opened here.
    std::optional<cudaEvent_t> find(const IpcBytes& bytes) const {
        return state_.with([&](const State& state) -> std::optional<cudaEvent_t> {
            const auto found = state.own.find(bytes);
            return found == state.own.end() ? std::nullopt : std::optional(found->second);
        });
    }

private:
    struct State {
        std::map<int, std::vector<SharedEvent>> free;
        std::map<IpcBytes, cudaEvent_t> own;
        std::size_t made = 0;
    };

    /// On the device that is set.
    SharedEvent made() {
        SharedEvent shared;
        check(cudaEventCreateWithFlags(&shared.event, cudaEventInterprocess | cudaEventDisableTiming),
              "no event for another process");
        cudaIpcEventHandle_t handle{};
        if (const auto error = cudaIpcGetEventHandle(&handle, shared.event); error != cudaSuccess) {
            (void)cudaEventDestroy(shared.event);
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

/// Waits, at its end, for the stream that imported and for that of the thread which let go of the last tensor: work on
/// a third stream is the user's to order, as it is for torch's own memory.
class CudaUse final : public DeviceUse {
public:
    CudaUse(int ordinal, cudaStream_t stream, cudaEvent_t imported)
        : ordinal_(ordinal), stream_(stream), imported_(imported) {}
    CudaUse(const CudaUse&) = delete;
    CudaUse& operator=(const CudaUse&) = delete;
    ~CudaUse() override {
        quietly("the end of an imported tensor", [&] {
            if (imported_ == nullptr && fences_[0] == nullptr && fences_[1] == nullptr) return;
            const OnDevice on(ordinal_);
            for (const cudaEvent_t event : {imported_, fences_[0], fences_[1]})
                if (event != nullptr) (void)cudaEventDestroy(event);
            (void)cudaGetLastError();
        });
    }

    void end() noexcept override {
        quietly("the end of an imported tensor", [&] {
            const OnDevice on(ordinal_);
            const cudaStream_t now = current_stream(ordinal_);
            fences_[0] = fence(stream_);
            if (now != stream_) fences_[1] = fence(now);
        });
    }
    void finish() noexcept override {
        quietly("the end of an imported tensor", [&] {
            const OnDevice on(ordinal_);
            for (const cudaEvent_t fence : fences_)
                if (fence != nullptr && cudaEventSynchronize(fence) != cudaSuccess) (void)cudaGetLastError();
        });
    }

private:
    /// Null while the stream is being captured: the graph would get the event, and nobody could wait for it.
    static cudaEvent_t fence(cudaStream_t stream) {
        if (is_capturing(stream)) return nullptr;
        cudaEvent_t event = nullptr;
        check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming | cudaEventBlockingSync), "no event");
        if (cudaEventRecord(event, stream) == cudaSuccess) return event;
        (void)cudaGetLastError();
        (void)cudaEventDestroy(event);
        return nullptr;
    }

    const int ordinal_;
    const cudaStream_t stream_;
    const cudaEvent_t imported_;
    std::array<cudaEvent_t, 2> fences_{};
};

}  // namespace shared_tensor::tensor
