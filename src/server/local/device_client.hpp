#pragma once

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/concurrency/guarded.hpp"
#include "base/system/unique_fd.hpp"
#include "runtime/tables/lease_table.hpp"
#include "tensor/device/device_peer.hpp"

namespace shared_tensor::server {

/// The reason why no memory can be lent to a client any more.
inline constexpr const char* kChannelGone = "the client's local channel is gone";

/// Grants `holder` a lease on `memory`, of `bytes` bytes, and returns it. Throws CannotLend if the table has no room,
/// or if `is_alive(lease)` returns false: the client may have ended before the lease was granted.
std::string lend_under_lease(runtime::LeaseTable& leases, const runtime::LeaseHolder& holder,
                             tensor::TransportKind transport, std::uint64_t bytes,
                             std::unique_ptr<runtime::LeasedBytes> memory,
                             const std::function<bool(const std::string& lease)>& is_alive);

/// The device memory shared with one client of the local channel: the blocks that the server lent to the client, under
/// leases of the lease table, and the client's tensors that calls of the server use.
/// Thread safety: all methods from any thread.
class DeviceClient final : public tensor::DevicePeer, public std::enable_shared_from_this<DeviceClient> {
public:
    /// Tells the client on its channel that the server no longer uses the tensor. Must not block.
    using TellReleased = std::function<void(const std::string& lease)>;
    /// `devices`: the UUIDs of the devices that the client sees.
    DeviceClient(runtime::LeaseTable& leases, runtime::LeaseHolder lease_holder,
                 const std::vector<std::string>& devices, TellReleased tell_released);

    // tensor::DevicePeer
    tensor::Viability viable() const override;
    bool sees(const std::string& uuid) const override { return devices_.contains(uuid); }
    std::uint64_t owner() const override { return owner_; }
    std::function<void()> use(const std::string& lease) override;
    Lent lend(std::shared_ptr<const tensor::LentBlock> block) override;

    /// The client has closed these blocks. The blocks of them that wait in the deferred free are freed.
    void closed(const std::vector<std::string>& leases);
    /// The client asks for tensors of its own back, and will not name them again. Returns the leases that the server no
    /// longer uses; calls TellReleased for the others when their last use ends. `lost`: a request that names these
    /// leases may still arrive; use() rejects them from now on.
    std::vector<std::string> recall(const std::vector<std::string>& leases, bool lost);
    /// The client's channel is closed.
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

    runtime::LeaseTable* const leases_;
    const runtime::LeaseHolder lease_holder_;
    const std::set<std::string> devices_;
    const TellReleased tell_released_;
    const std::uint64_t owner_;
    /// Becomes readable when the client's process ends; null if the end cannot be detected.
    const std::shared_ptr<const UniqueFd> process_;
    Guarded<State> state_;
};

}  // namespace shared_tensor::server
