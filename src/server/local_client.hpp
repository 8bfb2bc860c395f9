#pragma once

#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "local/channel_server.hpp"
#include "server/device_client.hpp"
#include "server/principal.hpp"
#include "service/lease_table.hpp"
#include "shm/mapping_cache.hpp"
#include "tensor/shm_medium.hpp"
#include "util/background.hpp"
#include "util/budget.hpp"
#include "util/guarded.hpp"

namespace shared_tensor::server {

/// What all clients of the local channel share. It outlives their channels; their tensors may outlive it.
struct LocalMemory {
    shm::SegmentPool& pool;
    service::LeaseTable& leases;
    Budget& offered;  ///< segments of clients that may be known at once: each holds a descriptor of ours
    std::shared_ptr<ClientUse> use{};  ///< of this client's principal; null: without limits
};

/// One process at the other end of the local channel: what it offered to us and what it was lent. Shared by the channel
/// and by the messages that are being answered; ended() makes it useless for both.
/// Thread safety: all methods from any thread.
class LocalClient final : public tensor::ShmPeer, public std::enable_shared_from_this<LocalClient> {
public:
    /// Called when the client waits for a segment of its own that nothing reads any more; must not block.
    using TellFree = std::function<void(const std::string& segment)>;
    LocalClient(LocalMemory memory, service::Lessee lessee, std::shared_ptr<DeviceClient> devices, TellFree tell_free);

    // tensor::ShmPeer
    tensor::Viability viable() const override;
    Borrowed borrow(const std::string& segment, const std::string& lease) override;
    shm::PooledSegmentPointer take(std::uint64_t bytes) override;
    std::optional<shm::SegmentPool::Place> find(const void* address) const override;
    bool keeps_copies() const override { return true; }
    Lent lend(shm::PooledSegmentPointer segment, std::uint64_t bytes, const codec::TensorPointer& tensor) override;

    /// The ways of messages of this client.
    const tensor::Media& media() const { return media_; }
    const service::Lessee& lessee() const { return lessee_; }
    DeviceClient& devices() const { return *devices_; }
    /// Watches from now on whether memory that the client offered fails.
    FaultWatch watch_memory() const { return FaultWatch(faults_); }

    /// Why no result can be lent to it just now, whatever its size; empty: nothing is in the way.
    std::string busy() const;

    enum class Offer { taken, known, full };
    /// A segment of the client's, checked when it is first used. Known: there is one of that name. Full: there are too
    /// many of all clients.
    Offer offer(const std::string& segment, std::shared_ptr<const UniqueFd> descriptor, std::uint64_t bytes);
    /// The client wants to use its segment for something else: true when nothing reads it; if not, TellFree later.
    /// One that it never offered is free.
    bool recycle(const std::string& segment);
    /// The client has given its segment up.
    void withdraw(const std::string& segment);

    /// A segment of ours that it was lent, to be mapped; nothing when it was not, or not any more.
    std::optional<shm::MappingCache::Source> lent_segment(const std::string& segment) const;
    /// Whether it may have that segment mapped, and from now on not.
    bool forget_lent(const std::string& segment);

    /// Its channel is gone.
    void ended();
    /// Calls `act` once when that happens, at once if it has, unless what is returned was destroyed before. `act` must
    /// not block.
    std::shared_ptr<const void> on_ended(std::function<void()> act);

private:
    struct Offered {
        shm::MappingCache::Source source;
        std::string mapped_as;  ///< of this offer alone: the client may give a name up and offer another segment by it
        std::size_t uses = 0;
        bool wanted_back = false;
        Budget::Share place{}, of_principal{};
    };
    using Act = std::function<void()>;
    struct State {
        bool ended = false;
        std::vector<std::weak_ptr<const Act>> at_end;
        std::uint64_t offers = 0;
        std::unordered_map<std::string, Offered> offered;
        std::unordered_map<std::string, std::weak_ptr<shm::PooledSegment>> lent;
    };
    class Loan;
    void drop_use(const std::string& segment, const std::string& mapped_as);

    const LocalMemory memory_;
    const service::Lessee lessee_;
    const TellFree tell_free_;
    const std::shared_ptr<DeviceClient> devices_;  ///< shared with the tensors of the client's that calls use
    const std::unique_ptr<tensor::Medium> cuda_ipc_, shm_;
    const tensor::Media media_;
    const std::shared_ptr<FaultCount> faults_ = std::make_shared<FaultCount>();
    shm::MappingCache mappings_;
    Guarded<State> state_;
};

}  // namespace shared_tensor::server
