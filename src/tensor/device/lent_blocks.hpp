#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/concurrency/guarded.hpp"
#include "base/system/unique_fd.hpp"
#include "protocol/codec/value.hpp"
#include "tensor/device/ipc_handle_cache.hpp"
#include "tensor/transports/transport.hpp"

namespace shared_tensor::tensor {

/// A tensor of this process that another process may read. Keeps its memory and the event that the reader waits for.
class LentBlock {
public:
    LentBlock(TensorRef tensor, const IpcBytes& handle, const DevicePlace& place, DeviceEvent event, Exports& exports)
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
    const DeviceEvent event_;
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

/// The process at the other end of a local channel, for tensors in device memory, like ShmPeer for shared memory.
/// Thread safety: all methods from any thread.
class DevicePeer {
public:
    virtual ~DevicePeer() = default;
    /// Whether the peer can share device memory with this process.
    virtual Viability viable() const = 0;
    /// Whether the peer sees the device.
    virtual bool sees(const std::string& uuid) const = 0;
    /// A number for the peer as the owner of its blocks, for IpcHandleCache::forget(). No other peer of this process
    /// has it.
    std::uint64_t owner() const { return owner_; }

    /// Marks the tensor that the peer lent under `lease` as in use, until the returned function is called: once, from
    /// any thread. Throws InvalidValue (path "lease").
    virtual std::function<void()> use(const std::string& lease) = 0;
    /// If true, an import that throws CannotOpen does not call the function returned by use(): this process keeps the
    /// lease, and can ask for the tensor by another transport.
    virtual bool keeps_unopened() const { return false; }

    /// Lets the peer open the block. The block is kept until the peer tells that it closed it, or until the peer's
    /// process has ended. Throws CannotLend.
    virtual Lending lend(std::shared_ptr<const LentBlock> block) = 0;

protected:
    DevicePeer();

private:
    const std::uint64_t owner_;
};

/// Makes the transport that sends tensors on devices as IPC handles of their memory, without a copy. Imported tensors
/// are used in the peer's memory if Incoming::borrow is set, else copied on the device first. `peer` must outlive the
/// transport.
std::unique_ptr<Transport> make_cuda_ipc_transport(DevicePeer& peer);

}  // namespace shared_tensor::tensor
