#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tensor/devices/ipc_device.hpp"
#include "tensor/devices/lent_block.hpp"
#include "tensor/devices/openings.hpp"
#include "tensor/devices/quarantine.hpp"
#include "util/background.hpp"

namespace shared_tensor::tensor {

/// Whether this process shares GPU memory.
enum class UseCuda {
    no,
    if_loaded,  ///< where the program uses CUDA already: its driver's library is in the process
    if_found,   ///< where there is a GPU
};

/// Gives a kind's object of this process: a forked child has another one. From any thread.
using DeviceKind = const IpcDevice& (*)();

/// This process, and each that is forked from it, has devices of this kind beside CUDA from now on: simulated ones, for
/// tests. Before the first tensor lies on one. The same kind again changes nothing; throws std::logic_error for a
/// second kind.
void add_device_kind(DeviceKind kind);

/// What a plugin that brings a kind of device gives: its C function shared_tensor_device_kind returns it.
struct DeviceKindEntry {
    const char* version;  ///< of shared_tensor, of its build: IpcDevice changes with it
    DeviceKind kind;
};

/// The devices that this process sees, of all kinds, and what it shares of them. A process has one, which is never
/// destroyed: nothing of CUDA may be destroyed after the runtime is gone. A forked child has another one.
/// Thread safety: all methods from any thread.
class Devices {
public:
    static Devices& of_process();

    struct Kind {
        const IpcDevice* device = nullptr;
        Openings* openings = nullptr;
    };
    struct Found {
        Kind kind;
        std::size_t index = 0;  ///< of its devices
    };

    /// Once used, CUDA stays so. The result says why not, where it cannot be used.
    Viability use_cuda(UseCuda use);
    /// Empty reason: there is a device whose memory can be shared.
    Viability viable() const;
    std::vector<DeviceInfo> list() const;
    std::optional<Found> find(std::string_view uuid) const;
    /// The kind of device that the tensor lies on; nothing for host memory.
    std::optional<Kind> holder(const TensorRef& tensor) const noexcept;

    Exports& exports() { return exports_; }
    Quarantine& quarantine() { return quarantine_; }
    const Quarantine& quarantine() const { return quarantine_; }
    void forget(std::uint64_t owner);
    /// For what may block until the device is idle.
    void in_background(std::function<void()> work) { closer_.post(std::move(work)); }
    OpeningStats openings() const;

private:
    Devices();
    Kind cuda() const { return {cuda_, cuda_openings_.get()}; }
    std::optional<Kind> added() const;
    std::vector<Kind> usable() const;

    const bool is_child_of_cuda_;
    const IpcDevice* const cuda_;
    const std::unique_ptr<Openings> cuda_openings_;
    mutable std::once_flag added_once_;
    mutable std::unique_ptr<Openings> added_openings_;
    Guarded<std::optional<Viability>> cuda_use_;
    Exports exports_;
    Quarantine quarantine_;
    Background closer_{"st-devices"};
};

/// The device of a tensor that is not in host memory. Throws DeviceRefused for one that this process knows nothing of.
const IpcDevice& device_of(const TensorRef& tensor);
/// The tensor is not in host memory.
bool is_on_device(const TensorRef& tensor) noexcept;
/// Elements of a tensor that is, in order; as many bytes as it has. Blocks.
void read_from_device(const TensorRef& tensor, std::byte* out);

}  // namespace shared_tensor::tensor
