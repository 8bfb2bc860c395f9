#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include <shared_tensor/simulated.hpp>

#include "base/concurrency/background.hpp"
#include "base/concurrency/guarded.hpp"
#include "base/system/fork.hpp"
#include "support/simulated/ipc.hpp"

namespace shared_tensor::tensor::simulated {

using shared_tensor::simulated::Faults;
using shared_tensor::simulated::Statistics;

inline constexpr std::size_t kMaxDevices = 16;

/// The simulated devices of this process; <shared_tensor/simulated.hpp> lists the rules that they follow. The object is
/// never destroyed, because tensors may live until the end of the process. A forked child has its own object, and
/// tensors of its parent are host memory for the child.
class SimulatedDevice final : public IpcDevice {
public:
    static SimulatedDevice& of_process();
    static const IpcDevice& kind() { return of_process(); }

    void enable(std::size_t devices);
    std::size_t enabled() const;
    void inject(const Faults& faults) {
        faults_.with([&](Faults& held) { held = faults; });
    }
    void launch(std::size_t device, std::function<void()> work) const;
    void synchronize(std::size_t device) const;
    Statistics statistics() const;

    Viability viable() const override;
    std::vector<DeviceInfo> devices() const override;
    bool holds(const TensorRef& tensor) const noexcept override;
    std::size_t index_of(const TensorRef& tensor) const override;
    DevicePlace place(const TensorRef& tensor) const override;
    IpcBytes export_block(const DevicePlace& place) const override;
    Opened open(std::size_t device, const IpcBytes& handle, std::uint64_t generation) const override;
    void close(std::size_t device, std::byte* base) const noexcept override;
    DeviceEvent record(std::size_t device) const override;
    std::unique_ptr<DeviceUse> use(std::size_t device, const IpcBytes* event) const override;
    TensorRef view(std::size_t device, std::byte* data, std::shared_ptr<const void> owner, DType dtype, ShapeView shape,
                   ShapeView strides) const override;
    TensorRef empty(std::size_t device, DType dtype, ShapeView shape) const override;
    TensorRef copy(const TensorRef& tensor) const override;
    std::unique_ptr<DeviceRead> start_read(const TensorRef& tensor, std::byte* out) const override;

private:
    SimulatedDevice() = default;
    void read_environment();

    /// The place of an address in a block of this process, or in an opened block of another process.
    struct Found {
        DevicePlace place{};
        bool is_own = false;
        IpcBytes handle{};
    };
    struct State {
        std::map<const std::byte*, const Block*, std::less<>> blocks;  ///< by their first bytes
        Statistics counts{};
    };
    std::optional<Found> find(const std::byte* address) const;
    Found find_or_throw(const TensorRef& tensor) const;
    void add(State& state, const Block& block) const;
    void free(Block* block) const;
    /// The thread of the device; null if it has had no work yet.
    Background* stream(std::size_t device) const;

    const ProcessMark process_;
    mutable Guarded<Faults> faults_;
    mutable std::atomic<std::size_t> blocks_{0};  ///< state_.blocks.size(); if it is 0, holds() takes no lock
    mutable Guarded<State> state_;
    mutable EventPool events_;
    mutable Guarded<std::array<std::unique_ptr<Background>, kMaxDevices>> streams_;
};

}  // namespace shared_tensor::tensor::simulated
