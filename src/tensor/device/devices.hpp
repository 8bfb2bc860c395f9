#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tensor/device/ipc_device.hpp"
#include "tensor/device/ipc_handle_cache.hpp"
#include "tensor/device/lent_blocks.hpp"

namespace shared_tensor::tensor {

/// Whether this process shares GPU memory.
enum class UseCuda {
    no,
    if_loaded,  ///< if the program itself uses CUDA: the driver's library is loaded
    if_found,   ///< if there is a GPU
};

/// Returns this process's object of a kind of device. A forked child has its own object. Any thread may call it.
using DeviceKind = const IpcDevice& (*)();

/// Adds a kind of device beside CUDA to this process and to its forked children: simulated devices, for tests. Must be
/// called before the first tensor is on such a device. To add the same kind again has no effect. Throws
/// std::logic_error for a second kind.
void add_device_kind(DeviceKind kind);

/// The record that a plugin with a kind of device returns from its C function shared_tensor_device_kind.
struct DeviceKindEntry {
    const char* version;  ///< version of shared_tensor that the plugin was built with: IpcDevice depends on it
    DeviceKind kind;
};

/// All devices that this process sees, of all kinds, with the IPC handle caches and deferred frees that belong to them.
/// There is one object per process. It is never destroyed, because no object of CUDA may be destroyed after the CUDA
/// runtime. A forked child has its own. Thread safety: all methods from any thread.
class Devices {
public:
    static Devices& of_process();

    struct Kind {
        const IpcDevice* device = nullptr;
        IpcHandleCache* handles = nullptr;
    };
    struct Found {
        Kind kind;
        std::size_t index = 0;  ///< index into device->devices()
    };

    /// Enables CUDA for the rest of the process, or returns the reason why it cannot be used.
    Viability use_cuda(UseCuda use);
    /// Whether there is a device whose memory can be shared.
    Viability viable() const;
    std::vector<DeviceInfo> list() const;
    std::optional<Found> find(std::string_view uuid) const;
    /// Returns the kind of device that has the tensor; nullopt for host memory.
    std::optional<Kind> holder(const TensorRef& tensor) const noexcept;

    DeferredFrees& deferred_frees() { return deferred_frees_; }
    const DeferredFrees& deferred_frees() const { return deferred_frees_; }
    /// Calls IpcHandleCache::forget() of all kinds.
    void forget(std::uint64_t owner);
    IpcHandleCacheStats handles() const;

private:
    Devices();
    /// CUDA and the added kind; a kind that this process does not have has no device.
    std::array<Kind, 2> kinds() const;
    std::vector<Kind> usable() const;

    const bool is_child_of_cuda_;
    const std::unique_ptr<IpcHandleCache> cuda_handles_;  ///< null in a build without CUDA
    mutable std::once_flag added_once_;
    mutable std::unique_ptr<IpcHandleCache> added_handles_;
    Guarded<std::optional<Viability>> cuda_use_;
    DeferredFrees deferred_frees_;
};

/// Returns the kind of device that has a tensor. Throws DeviceRejected if the tensor is on no device of this process.
const IpcDevice& device_of(const TensorRef& tensor);
/// Whether the tensor is not in host memory.
bool is_on_device(const TensorRef& tensor) noexcept;

/// Returns why a function cannot have its tensors on `device` ("cpu", "cuda", "cuda:1") and in `dtype`. Empty if it
/// can.
std::string rejection_of_placement(std::string_view device, std::string_view dtype);

}  // namespace shared_tensor::tensor
