#pragma once

#include <functional>
#include <memory>
#include <set>
#include <stop_token>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/concurrency/background.hpp"
#include "base/concurrency/budget.hpp"
#include "base/concurrency/guarded.hpp"
#include "base/system/unique_fd.hpp"
#include "local/channel/channel_server.hpp"
#include "local/segments/received_segment.hpp"
#include "runtime/tables/lease_table.hpp"
#include "server/auth/principal.hpp"
#include "tensor/device/lent_blocks.hpp"
#include "tensor/transports/shm_transport.hpp"

namespace shared_tensor::server {

/// The reason why no memory can be lent to a client any more.
inline constexpr const char* kChannelGone = "the client's local channel is gone";

/// Grants `holder` a lease on `memory`, of `bytes` bytes, and returns it. Throws CannotLend if the table has no room,
/// or if `is_alive(lease)` returns false: the client may have ended before the lease was granted.
std::string lend_under_lease(runtime::LeaseTable& leases, const runtime::LeaseHolder& holder,
                             tensor::TransportKind transport, std::uint64_t bytes, runtime::LeasedBytes memory,
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
    std::function<void()> use(const std::string& lease) override;
    tensor::Lending lend(std::shared_ptr<const tensor::LentBlock> block) override;

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
    /// Becomes readable when the client's process ends; null if the end cannot be detected.
    const std::shared_ptr<const UniqueFd> process_;
    Guarded<State> state_;
};

/// The objects that all clients of the local channel share, except `use`. They outlive the channels; tensors of the
/// clients may outlive them.
struct LocalMemory {
    local::SegmentPool& pool;
    runtime::LeaseTable& leases;
    Budget& offered;  ///< segments that clients may offer, in total: each takes a descriptor of the server
    std::shared_ptr<ClientUse> use{};  ///< limits of this client's principal; null: no limits
};

/// One client of the local channel: the segments that it offered to the server, and the segments that the server lent
/// to it. The channel and the messages in progress share it. After ended() neither side can lend memory any more.
/// Thread safety: all methods from any thread.
class LocalClient final : public tensor::ShmPeer,
                          public local::SegmentListener,
                          public std::enable_shared_from_this<LocalClient> {
public:
    /// Sends the client a notification with the parameters {"`list`": [`id`]}. Must not block.
    using Tell = std::function<void(const char* method, const char* list, const std::string& id)>;
    /// `devices`: the UUIDs of the devices that the client sees.
    LocalClient(LocalMemory memory, runtime::LeaseHolder lease_holder, const std::vector<std::string>& devices,
                const Tell& tell);

    // tensor::ShmPeer
    tensor::Viability viable() const override;
    Borrowed borrow(const std::string& segment, const std::string& lease) override;
    local::PooledSegmentPointer take(std::uint64_t bytes) override;
    std::optional<local::SegmentPlace> find(const void* data, std::uint64_t bytes) const override;
    bool keeps_copies() const override { return true; }
    tensor::Lending lend(local::SegmentUsePointer segment, std::uint64_t bytes,
                         const codec::TensorPointer& tensor) override;

    /// The transports for messages of this client.
    const tensor::Transports& transports() const { return transports_; }
    const runtime::LeaseHolder& lease_holder() const { return lease_holder_; }
    DeviceClient& devices() const { return *devices_; }
    /// Watches from now on whether memory that the client offered fails (SIGBUS).
    FaultWatch watch_memory() const { return FaultWatch(faults_); }

    /// How many mappings of the client's segments there are, idle ones included.
    std::size_t mapped() const {
        const local::MappingCache::Use use = mappings_.use();
        return use.used + use.idle;
    }

    /// The reason why no result of any size can be lent in shared memory now; empty if there is none.
    std::string busy() const;

    enum class Offer { taken, known, full };
    /// Adds a segment of the client; it is checked when it is first used. Returns `known` if the client has offered a
    /// segment of that name, or if ended() was called; `full` if the limit of the principal or of all clients is
    /// reached.
    Offer offer(const std::string& segment, std::shared_ptr<const UniqueFd> descriptor, std::uint64_t bytes);
    /// The client wants to reuse its segment. Returns true if the server does not read it, or does not know it. Else
    /// returns false, and tells the client (segment.free) when the server has done with it.
    bool recycle(const std::string& segment);
    /// The client has freed its segment. Tensors that use it keep their mappings.
    void withdraw(const std::string& segment);

    /// A segment of the server, for the client to map; nullopt if it is not lent to the client.
    std::optional<local::MappingCache::Source> lent_segment(const std::string& segment) const;
    // local::SegmentListener
    /// Tells the client that the segment is gone, if it was lent to the client: the client may have it mapped.
    void segment_gone(const std::string& segment) override;

    /// The client's channel is closed.
    void ended();
    /// Is stopped by ended().
    std::stop_token end() const { return end_.get_token(); }

private:
    class Loan;
    struct Offered {
        local::MappingCache::Source source;
        /// The key in `mappings_`, unique for each offer: the client may free a segment and reuse its name for another.
        std::string mapped_as;
        std::size_t uses = 0;
        bool wanted_back = false;
        Budget::Share place{}, of_principal{};
        bool retired = false;  ///< the client is told to retire it, and never that it is free
        std::shared_ptr<const local::ReceivedSegment> received{};  ///< null until it is passed on
        std::weak_ptr<local::SegmentUse> passed_on{};
    };
    struct State {
        bool ended = false;
        std::uint64_t offers = 0;
        std::unordered_map<std::string, Offered> offered;
        std::unordered_map<std::string, std::weak_ptr<const local::SegmentFile>> lent;

        /// Null if the client has withdrawn that offer.
        Offered* find(const std::string& segment, const std::string& mapped_as);
    };
    local::SegmentUsePointer pass_on(const Loan& loan);
    void retire(const std::string& segment, const std::string& mapped_as);
    void drop_use(const std::string& segment, const std::string& mapped_as);

    const LocalMemory memory_;
    const runtime::LeaseHolder lease_holder_;
    const Tell tell_;
    const std::shared_ptr<DeviceClient> devices_;  ///< shared with the client's tensors that calls use
    const std::unique_ptr<tensor::Transport> cuda_ipc_, shm_;
    const tensor::Transports transports_;
    const std::shared_ptr<FaultCount> faults_ = std::make_shared<FaultCount>();
    local::MappingCache mappings_;
    Guarded<State> state_;
    std::stop_source end_;
};

}  // namespace shared_tensor::server
