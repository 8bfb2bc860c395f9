#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <new>
#include <set>
#include <utility>

#include "base/concurrency/guarded.hpp"
#include "tensor/device/cuda/cuda_device.hpp"
#include "tensor/device/cuda/cuda_driver.hpp"

namespace shared_tensor::tensor {

/// Allocates GPU memory for copies of tensors. Freed memory is reused, in the order of the default stream, because the
/// driver takes long to allocate memory and stops the device to free it.
/// Thread safety: all methods from any thread.
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

}  // namespace shared_tensor::tensor
