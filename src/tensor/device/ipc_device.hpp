#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <shared_tensor/tensor_ref.hpp>

#include "tensor/layout.hpp"
#include "tensor/transports/transport.hpp"

namespace shared_tensor::tensor {

/// The bytes of a cudaIpcMemHandle_t or cudaIpcEventHandle_t.
using IpcBytes = std::array<std::byte, 64>;

/// The device or its driver rejected an operation. what() gives the reason.
class DeviceRejected : public std::runtime_error {
public:
    using std::runtime_error::runtime_error;
};

struct DeviceInfo {
    std::string uuid;  ///< "GPU-..."; never an ordinal, which differs by process
    std::string name;
    std::uint64_t memory_bytes = 0;
};

/// The place of a tensor's elements in device memory. A handle names the whole block, so a process that opens it can
/// access everything else in the block too.
struct DevicePlace {
    std::size_t device = 0;         ///< index into devices()
    std::byte* base = nullptr;      ///< start of the block
    std::uint64_t offset = 0;       ///< of the first element, in bytes from `base`
    std::uint64_t block_bytes = 0;  ///< size of the block
    std::uint64_t generation = 0;   ///< of the block: it changes when the block is freed and its address is reused
    std::string rejection{};        ///< why the block cannot be exported; empty: it can be
};

/// The handle of an event: a point in the order of a device's work that another process can wait for. The last copy
/// returns the event to its pool.
using DeviceEvent = std::shared_ptr<const IpcBytes>;

/// The use of another process's memory by this process: from the import of a tensor to the last work that was given to
/// the device for it.
class DeviceUse {
public:
    virtual ~DeviceUse() = default;
    /// Called when no more work on the memory will be given to the device. Any thread may call it. Does not block.
    virtual void end() noexcept = 0;
    /// Blocks until the device has finished all work that was given before end(). Call it after end().
    virtual void finish() noexcept = 0;
};

/// A copy from a device to host memory that is in progress. After its destructor nothing writes to the host memory.
class DeviceRead {
public:
    virtual ~DeviceRead() = default;
    /// Blocks until the copy is complete. Call it once. Throws DeviceRejected.
    virtual void wait() = 0;
};

/// The devices of one kind, with the operations for sharing their memory between processes: CUDA, or its simulation for
/// tests. An implementation follows the rules of its driver. It uses no leases, caches or clients: these are the same
/// for all kinds and are built on this interface.
///
/// Methods that may block for long are marked. Each method sets the device that it needs and restores the thread's own.
/// Thread safety: all methods from any thread.
class IpcDevice {
public:
    virtual ~IpcDevice() = default;

    /// Whether this machine has a device of this kind whose memory can be shared. The other methods, except holds(),
    /// need a viable kind.
    virtual Viability viable() const = 0;
    virtual std::vector<DeviceInfo> devices() const = 0;
    /// Whether the tensor is on a device of this kind. May be called even if the kind is not viable.
    virtual bool holds(const TensorRef& tensor) const noexcept = 0;

    /// Returns the index into devices() for a tensor that holds() is true for. Throws DeviceRejected.
    virtual std::size_t index_of(const TensorRef& tensor) const = 0;
    /// Returns the place of such a tensor, which must have elements. Throws DeviceRejected.
    virtual DevicePlace place(const TensorRef& tensor) const = 0;
    /// Returns the IPC handle of a block. The block must live as long as any process has it open. Throws
    /// DeviceRejected.
    virtual IpcBytes export_block(const DevicePlace& place) const = 0;

    struct Opened {
        std::byte* base = nullptr;
        std::uint64_t bytes = 0;  ///< from the driver, not from the peer
    };
    /// Opens another process's block. A block must not be opened again before it is closed. Blocks: longer for larger
    /// blocks. Throws DeviceRejected.
    virtual Opened open(std::size_t device, const IpcBytes& handle, std::uint64_t generation) const = 0;
    /// Closes an opened block. May block until the device is idle.
    virtual void close(std::size_t device, std::byte* base) const noexcept = 0;

    /// Returns an event after all work that this thread gave to the device. If no event is left, blocks until that work
    /// is done and returns null. Throws DeviceRejected.
    virtual DeviceEvent record(std::size_t device) const = 0;
    /// Starts the use of another process's memory: orders later work of this thread after `event` (null: no order).
    /// Throws DeviceRejected.
    virtual std::unique_ptr<DeviceUse> use(std::size_t device, const IpcBytes* event) const = 0;

    /// Returns a tensor at `data`, in memory that `owner` keeps.
    virtual TensorRef view(std::size_t device, std::byte* data, std::shared_ptr<const void> owner, DType dtype,
                           ShapeView shape, ShapeView strides) const = 0;
    /// Allocates a contiguous tensor. Throws DeviceRejected, std::bad_alloc.
    virtual TensorRef empty(std::size_t device, DType dtype, ShapeView shape) const = 0;
    /// Returns a contiguous copy on the same device, in memory of this process. Throws DeviceRejected, std::bad_alloc.
    virtual TensorRef copy(const TensorRef& tensor) const = 0;
    /// Allocates host memory that is fast for reads of this device (for CUDA: pinned). Ask for a megabyte or so: there
    /// may be little of it. Throws std::bad_alloc.
    virtual std::shared_ptr<std::byte> staging(std::size_t bytes) const {
        return {new std::byte[bytes], std::default_delete<std::byte[]>()};
    }
    /// Starts to copy the elements, at least one, to host memory, in C order. Does not block if `out` is staging()
    /// memory. `out` must outlive the result. Throws DeviceRejected, std::bad_alloc.
    virtual std::unique_ptr<DeviceRead> start_read(const TensorRef& tensor, std::byte* out) const = 0;

protected:
    IpcDevice() = default;
    IpcDevice(const IpcDevice&) = default;
    IpcDevice& operator=(const IpcDevice&) = default;
};

}  // namespace shared_tensor::tensor
