#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "base/concurrency/guarded.hpp"
#include "base/system/unique_fd.hpp"
#include "protocol/codec/value.hpp"
#include "tensor/device/ipc_device.hpp"

namespace shared_tensor::tensor {

/// The blocks of this process that other processes may open at the moment. A message from this process to itself finds
/// the memory here, because a handle cannot be opened in the process that made it.
/// Thread safety: all methods from any thread.
class Exports {
public:
    void add(const IpcBytes& handle, const DevicePlace& place);
    void remove(const IpcBytes& handle);

    struct Own {
        std::byte* base = nullptr;
        std::uint64_t bytes = 0;
        std::uint64_t generation = 0;
        std::size_t count = 0;
    };
    std::optional<Own> find(const IpcBytes& handle) const;

private:
    Guarded<std::map<IpcBytes, Own>> own_;
};

/// A tensor of this process that another process may read. Keeps its memory and the event that the reader waits for.
class LentBlock {
public:
    LentBlock(TensorRef tensor, const IpcBytes& handle, const DevicePlace& place, std::unique_ptr<DeviceEvent> event,
              Exports& exports)
        : tensor_(std::move(tensor)), handle_(handle), event_(std::move(event)), exports_(&exports) {
        exports.add(handle, place);
    }
    LentBlock(const LentBlock&) = delete;
    LentBlock& operator=(const LentBlock&) = delete;
    ~LentBlock() { exports_->remove(handle_); }

    std::uint64_t bytes() const { return tensor_.bytes(); }
    codec::TensorPointer handle() const;
    /// Records that the reader has closed the block.
    void mark_closed() const { closed_.store(true); }
    bool is_closed() const { return closed_.load(); }

private:
    mutable std::atomic<bool> closed_{false};
    const TensorRef tensor_;
    const IpcBytes handle_;
    const std::unique_ptr<DeviceEvent> event_;
    Exports* const exports_;
};

struct DeferredFreesUse {
    std::size_t blocks = 0;
    std::uint64_t bytes = 0;
};

/// Deferred free: keeps device memory whose lease has ended before the reader confirmed that it closed the block. To
/// free a block that is open in another process is undefined behaviour. So it stays until the reader confirms the
/// close, or until the reader's process has ended.
/// Thread safety: all methods from any thread.
class DeferredFrees {
public:
    /// Keeps a block, unless its reader has closed it. `process` becomes readable when the reader's process ends; null:
    /// its end is not detected.
    void keep(std::shared_ptr<const LentBlock> block, std::shared_ptr<const UniqueFd> process);
    /// Releases a block that its reader has closed. A later keep() of the block has no effect, because the lease may
    /// end at the same time.
    void free(const LentBlock* block);
    /// Maintenance: releases the blocks of readers whose process has ended.
    void sweep();
    DeferredFreesUse use() const;

private:
    struct Kept {
        std::shared_ptr<const LentBlock> block;
        std::shared_ptr<const UniqueFd> process;
    };
    Guarded<std::vector<Kept>> kept_;
};

/// Returns a descriptor that becomes readable when the process ends; null if the kernel gives none.
std::shared_ptr<const UniqueFd> watch_process(int pid);

}  // namespace shared_tensor::tensor
