#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include <shared_tensor/value.hpp>

#include "tensor/device/lent_blocks.hpp"
#include "tensor/transports/transport.hpp"

namespace shared_tensor::tensor {

/// A block that a peer lent cannot be opened in this process; what() has the driver's reason. Containers, namespaces
/// and settings of the driver can forbid it although both processes can use the device.
class CannotOpen : public InvalidValue {
public:
    using InvalidValue::InvalidValue;
};

/// The process at the other end of a local channel, for tensors in device memory, like ShmPeer for shared memory.
/// Thread safety: all methods from any thread.
class DevicePeer {
public:
    virtual ~DevicePeer() = default;
    /// Whether the peer can share device memory with this process.
    virtual Viability viable() const = 0;
    /// Whether the peer sees the device.
    virtual bool sees(const std::string& uuid) const = 0;
    /// A number for the peer as the owner of its blocks, for IpcHandleCache::forget().
    virtual std::uint64_t owner() const = 0;

    /// Marks the tensor that the peer lent under `lease` as in use, until the returned function is called: once, from
    /// any thread. Throws InvalidValue (path "lease").
    virtual std::function<void()> use(const std::string& lease) = 0;
    /// If true, an import that throws CannotOpen does not call the function returned by use(): this process keeps the
    /// lease, and can ask for the tensor by another transport.
    virtual bool keeps_unopened() const { return false; }

    /// Lets the peer open the block. The block is kept until the peer tells that it closed it, or until the peer's
    /// process has ended. Throws CannotLend.
    virtual Lending lend(std::shared_ptr<const LentBlock> block) = 0;
};

/// Makes the transport that sends tensors on devices as IPC handles of their memory, without a copy. Imported tensors
/// are used in the peer's memory if Incoming::borrow is set, else copied on the device first. `peer` must outlive the
/// transport.
std::unique_ptr<Transport> make_cuda_ipc_transport(DevicePeer& peer);

}  // namespace shared_tensor::tensor
