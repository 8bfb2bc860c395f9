#pragma once

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "service/lease_table.hpp"
#include "tensor/devices/device_peer.hpp"
#include "util/guarded.hpp"
#include "util/unique_fd.hpp"

namespace shared_tensor::server {

/// Device memory between us and one process at the other end of the local channel: what it was lent, under leases of
/// the table, and what of its own our calls use.
/// Thread safety: all methods from any thread.
class DeviceClient final : public tensor::DevicePeer, public std::enable_shared_from_this<DeviceClient> {
public:
    /// Tells the client on its channel that nothing here uses the tensor any more; must not block.
    using TellReleased = std::function<void(const std::string& lease)>;
    /// `devices`: those that the client sees, by UUID.
    DeviceClient(service::LeaseTable& leases, service::Lessee lessee, std::vector<std::string> devices,
                 TellReleased tell_released);

    // tensor::DevicePeer
    tensor::Viability viable() const override;
    bool sees(const std::string& uuid) const override { return devices_.contains(uuid); }
    std::uint64_t owner() const override { return owner_; }
    std::function<void()> use(const std::string& lease) override;
    Lent lend(std::shared_ptr<const tensor::LentBlock> block) override;

    /// The client has closed these: what was in quarantine for want of that word is let go.
    void closed(const std::vector<std::string>& leases);
    /// The client will not name these tensors of its own again: those that nothing here uses any more; for the others
    /// TellReleased, later. `lost`: a request that names them may be on its way yet, and must find them gone.
    std::vector<std::string> recall(const std::vector<std::string>& leases, bool lost);
    /// Its channel is gone.
    void ended();

private:
    struct Used {
        std::size_t count = 0;
        bool wanted_back = false;
    };
    struct State {
        bool ended = false;
        std::unordered_map<std::string, Used> used;
        std::set<std::string> lost;
        std::unordered_map<std::string, std::weak_ptr<const tensor::LentBlock>> lent;
    };
    void done(const std::string& lease);

    service::LeaseTable* const leases_;
    const service::Lessee lessee_;
    const std::set<std::string> devices_;
    const TellReleased tell_released_;
    const std::uint64_t owner_;
    const std::shared_ptr<const UniqueFd> process_;  ///< null: its end would not be seen
    Guarded<State> state_;
};

}  // namespace shared_tensor::server
