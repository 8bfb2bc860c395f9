#pragma once

#include <future>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <shared_tensor/error.hpp>

#include "client/channel_client.hpp"
#include "client/device_server.hpp"
#include "client/lease_words.hpp"
#include "shm/mapping_cache.hpp"
#include "tensor/shm_medium.hpp"
#include "util/guarded.hpp"
#include "util/process_mark.hpp"

namespace shared_tensor::client {

/// Memory shared with one server: its segments that we have mapped, ours that it may map, memory of devices, and the
/// local channel on which all is arranged. Tensors that view the server's memory keep it alive.
/// Thread safety: all methods from any thread.
class SharedMemory final : public tensor::ShmPeer, public std::enable_shared_from_this<SharedMemory> {
public:
    /// Throws ChannelGone with the reason: nobody listens there, another user's, refused.
    static std::shared_ptr<SharedMemory> connect(const std::string& path, const std::string& token);
    ~SharedMemory() override;

    /// Names us in HTTP requests; keeps no state between calls.
    const std::string& session() const { return session_; }
    /// A session that does, tied to the same channel. Throws ChannelGone, json_rpc::Error.
    std::string open_stateful_session();
    const tensor::Media& media() const { return media_; }
    /// For each way that tensors can go yes or why not, as the server said, and as was found out since.
    json_rpc::Json ways() const;
    /// Device memory between us and the server.
    DeviceServer& devices() { return devices_; }
    /// Into `made`: an uninitialised tensor in memory of ours that the server may map.
    TensorRef make_tensor(std::span<const std::int64_t> shape, DType dtype);
    /// Nobody has read the tensors of these leases, and nobody will.
    void give_up(const std::vector<std::string>& leases);
    void confirm(const std::vector<std::string>& leases);
    /// For a result in memory of a channel that is gone.
    static TensorExpired expired(std::string_view why);
    /// In words of Shared-Tensor-Accept: what such memory can carry.
    std::string accepted() const;

    // tensor::ShmPeer
    tensor::Viability viable() const override;
    Borrowed borrow(const std::string& segment, const std::string& lease) override;
    shm::PooledSegmentPointer take(std::uint64_t bytes) override;
    std::optional<shm::SegmentPool::Place> find(const void* address) const override;
    Lent lend(shm::PooledSegmentPointer segment, std::uint64_t bytes, const codec::TensorPointer& tensor) override;

private:
    class Use;
    /// A segment of ours that the server has, or is getting, until it goes back to the system.
    struct Offered {
        shm::PooledSegmentPointer keep;  ///< null while it is idle in the pool
        std::shared_future<void> known;  ///< to the server
        std::size_t in_flight = 0;       ///< messages that name it
        bool asked_back = false;
        bool uncertain = false;  ///< a message that names it may reach the server at any time
    };
    struct State {
        bool gone = false;
        std::unordered_map<std::string, Offered> offered;
    };

    SharedMemory(const std::string& path, std::string token);
    std::string open_session(bool keeps_state);
    std::unique_ptr<shm::Mapping> map(const std::string& segment, const std::string& lease);
    shm::MappingCache::Source ask_for(const std::string& segment);
    void offer(const shm::Segment& segment);
    void give_back(const std::string& segment, const std::string& lease, std::unique_ptr<shm::Mapping> mapping,
                   bool is_clean) noexcept;
    void leave(const std::string& segment, const std::string& lease) noexcept;
    void finished(const std::string& segment, bool answered);
    void ask_back();
    void came_back(const std::vector<std::string>& segments);
    DeviceServer::Channel device_channel();
    std::vector<std::string> recall(const std::vector<std::string>& leases, bool lost);
    void heard(const json_rpc::Request& request);
    void segment_gone(const std::string& segment);
    void ended();

    const ProcessMark process_;
    const std::string token_;
    LeaseWords words_;
    DeviceServer devices_;
    const std::unique_ptr<tensor::Medium> cuda_ipc_, shm_;
    const tensor::Media media_;
    shm::MappingCache mappings_;
    Guarded<State> state_;
    std::shared_ptr<ChannelClient> channel_;
    std::string session_;
    json_rpc::Json ways_;
    std::unique_ptr<shm::SegmentPool> pool_;
};

}  // namespace shared_tensor::client
