#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include <shared_tensor/value.hpp>

#include "tensor/devices/lent_block.hpp"
#include "tensor/medium.hpp"

namespace shared_tensor::tensor {

/// A block that a peer lent cannot be opened in this process, with the driver's reason: containers, namespaces and
/// settings of the driver may forbid what both sides can do by themselves.
class CannotOpen : public InvalidValue {
public:
    using InvalidValue::InvalidValue;
};

/// The process at the other end, as tensors in device memory need it; what ShmPeer is for shared memory.
/// Thread safety: all methods from any thread.
class DevicePeer {
public:
    virtual ~DevicePeer() = default;
    /// Yes, or why that process cannot share device memory with us.
    virtual Viability viable() const = 0;
    /// Whether it sees that device.
    virtual bool sees(const std::string& uuid) const = 0;
    /// Whose blocks its handles name, for Openings::forget().
    virtual std::uint64_t owner() const = 0;

    /// A tensor that it lent us under `lease` is read from now on, until the result is called, once and from any
    /// thread. Throws InvalidValue (path "lease").
    virtual std::function<void()> use(const std::string& lease) = 0;
    /// Where CannotOpen is thrown, the result of use() is not called: whoever imports has the lease yet, and may ask
    /// for the tensor in another way.
    virtual bool keeps_unopened() const { return false; }

    struct Lent {
        std::string lease;
        std::shared_ptr<Hold> held;  ///< see Exported::held
    };
    /// Lets the peer open the block, which is kept until it said that it has closed it, or until its process is gone.
    /// Throws CannotLend.
    virtual Lent lend(std::shared_ptr<const LentBlock> block) = 0;
};

/// Tensors on devices as handles of their memory: no copy. What a peer lent is read where it lies, or, for whoever runs
/// functions, copied on the device first (Incoming::borrow: not even then). The peer must outlive the medium.
enum class DeviceImports { where_they_lie, copied };
std::unique_ptr<Medium> make_cuda_ipc_medium(DevicePeer& peer, DeviceImports imports);

}  // namespace shared_tensor::tensor
