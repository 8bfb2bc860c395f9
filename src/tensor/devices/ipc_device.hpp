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
#include "tensor/medium.hpp"

namespace shared_tensor::tensor {

/// A cudaIpcMemHandle_t or cudaIpcEventHandle_t as it travels.
using IpcBytes = std::array<std::byte, 64>;

/// The device, or its driver, does not do it, with the reason for people.
class DeviceRefused : public std::runtime_error {
public:
    using std::runtime_error::runtime_error;
};

struct DeviceInfo {
    std::string uuid;  ///< "GPU-..."; never an ordinal, which differs by process
    std::string name;
    std::uint64_t memory_bytes = 0;
};

/// Where a tensor's elements lie: a handle names a whole block, and everything else in it becomes visible with it.
struct DevicePlace {
    std::size_t device = 0;  ///< index into devices()
    std::byte* base = nullptr;
    std::uint64_t offset = 0;  ///< of the first element
    std::uint64_t block_bytes = 0;
    std::uint64_t generation = 0;  ///< of the block: another one after it was freed and its address used again
    std::string obstacle{};        ///< why its block cannot be exported; empty: it can
};

/// A point in the order of a device's work that another process can wait for. Gives itself back to its pool.
class DeviceEvent {
public:
    virtual ~DeviceEvent() = default;
    virtual const IpcBytes& bytes() const = 0;
};

/// This process reading memory of another one, from the import of a tensor to the last work that was given to the
/// device for it.
class DeviceUse {
public:
    virtual ~DeviceUse() = default;
    /// Nothing more will be given to the device. Any thread; does not block.
    virtual void end() noexcept = 0;
    /// After end(): blocks until the device has done all of it.
    virtual void finish() noexcept = 0;
};

/// Elements on their way from a device to host memory. At its end they are there, or nobody writes to that memory any
/// more.
class DeviceRead {
public:
    virtual ~DeviceRead() = default;
    /// Blocks until they are there. Once. Throws DeviceRefused.
    virtual void wait() = 0;
};

/// Devices of one kind as sharing between processes needs them: CUDA, and its simulation for tests. It knows the rules
/// of the driver and nothing of leases, caches and clients: those are the same for all kinds and lie above it.
///
/// What may block for long is said. Each method sets the device that it needs and leaves the thread's own as it was.
/// Thread safety: all methods from any thread.
class IpcDevice {
public:
    virtual ~IpcDevice() = default;

    /// Of the kind: whether there is a device here whose memory can be shared. The rest needs a yes.
    virtual Viability viable() const = 0;
    virtual std::vector<DeviceInfo> devices() const = 0;
    /// Whether the tensor lies on a device of this kind. Never throws, not even where viable() is no.
    virtual bool holds(const TensorRef& tensor) const noexcept = 0;

    /// Of a tensor that it holds. Throws DeviceRefused.
    virtual std::size_t index_of(const TensorRef& tensor) const = 0;
    /// Of one that has elements, too. Throws DeviceRefused.
    virtual DevicePlace place(const TensorRef& tensor) const = 0;
    /// Throws DeviceRefused. The block must live as long as anybody has it open.
    virtual IpcBytes export_block(const DevicePlace& place) const = 0;

    struct Opened {
        std::byte* base = nullptr;
        std::uint64_t bytes = 0;  ///< as the driver says, not the peer
    };
    /// Another process's block; never twice at once. Blocks: opening grows with the block. Throws DeviceRefused.
    virtual Opened open(std::size_t device, const IpcBytes& handle, std::uint64_t generation) const = 0;
    /// May block until the device is idle.
    virtual void close(std::size_t device, std::byte* base) const noexcept = 0;

    /// A point after all work that this thread gave to the device. Null when no event is left: then that work is done.
    /// Throws DeviceRefused.
    virtual std::unique_ptr<DeviceEvent> record(std::size_t device) const = 0;
    /// Work of this thread comes after `event` (null: after nothing). Throws DeviceRefused.
    virtual std::unique_ptr<DeviceUse> use(std::size_t device, const IpcBytes* event) const = 0;

    /// Elements at `data`, which `owner` keeps; never resized.
    virtual TensorRef view(std::size_t device, std::byte* data, std::shared_ptr<const void> owner, DType dtype,
                           ShapeView shape, ShapeView strides) const = 0;
    virtual TensorRef empty(std::size_t device, DType dtype, ShapeView shape) const = 0;
    /// On the same device, contiguous, in memory of this process. Throws std::bad_alloc.
    virtual TensorRef copy(const TensorRef& tensor) const = 0;
    /// Its elements in order, to host memory. Blocks.
    virtual void read(const TensorRef& tensor, std::byte* out) const = 0;
    /// Host memory that reads of this device go to best; of a megabyte or so, for there may be few. Throws
    /// std::bad_alloc.
    virtual std::shared_ptr<std::byte> staging(std::size_t bytes) const = 0;
    /// The same as read(), while the caller does something else if `out` is staging() memory. It outlives what is
    /// returned. Throws DeviceRefused, std::bad_alloc.
    virtual std::unique_ptr<DeviceRead> start_read(const TensorRef& tensor, std::byte* out) const = 0;
    /// A tensor of dtype bool has other bytes than 0 and 1. May block.
    virtual bool has_odd_bools(const TensorRef& tensor) const = 0;

protected:
    IpcDevice() = default;
    IpcDevice(const IpcDevice&) = default;
    IpcDevice& operator=(const IpcDevice&) = default;
};

}  // namespace shared_tensor::tensor
