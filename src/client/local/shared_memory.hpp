#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <shared_tensor/error.hpp>

#include "base/concurrency/guarded.hpp"
#include "base/system/fork.hpp"
#include "base/system/unique_fd.hpp"
#include "client/local/lease_acknowledgements.hpp"
#include "local/channel/channel.hpp"
#include "local/segments/immutable_memory.hpp"
#include "local/segments/received_segment.hpp"
#include "tensor/device/lent_blocks.hpp"
#include "tensor/transports/shm_transport.hpp"

namespace shared_tensor::client {

class SharedMemory;

/// Why a forked child cannot use the channel of its parent.
inline constexpr const char* kOfParent = "the local channel belongs to the process that this one was forked from";
/// The server's reason for an error: `data.detail`, else the message.
std::string detail_of(const json_rpc::Error& error);

/// A message that names memory of this client. When the message has ended, `finished` runs on the background executor,
/// with whether the server has read the message. In a forked child it does not run: the message belongs to the parent.
class InFlight final : public tensor::Pin {
public:
    using Finished = std::function<void(bool answered)>;
    explicit InFlight(Finished finished) : finished_(std::move(finished)) {}
    InFlight(const InFlight&) = delete;
    InFlight& operator=(const InFlight&) = delete;
    ~InFlight() override;
    void answered() noexcept override { answered_ = true; }

private:
    const ProcessMark process_;
    Finished finished_;
    bool answered_ = false;
};

/// The device memory shared with one server: blocks that this client lends to the server, and blocks of the server that
/// this client reads.
/// Thread safety: all methods from any thread, after connected().
class DeviceServer final : public tensor::DevicePeer {
public:
    /// `memory` has this object as a member.
    explicit DeviceServer(SharedMemory& memory);

    /// `process`: the server's process id. `devices`: the UUIDs of the devices that the server sees.
    void connected(pid_t process, const std::vector<std::string>& devices);

    /// Called when this process has opened memory of the server. Later failures then concern single blocks only.
    void opened();
    /// Called when a block could not be opened, by the server (`by_server`) or by this process. Before opened() this
    /// ends the sharing of device memory, and viable() returns the reason. After opened() it changes nothing, because
    /// only this block may be affected.
    void not_opened(const std::string& reason, bool by_server);
    /// The reason why not_opened() has ended the sharing; empty if it has not.
    std::string rejected() const;

    // tensor::DevicePeer
    tensor::Viability viable() const override;
    bool sees(const std::string& uuid) const override;
    std::function<void()> use(const std::string& lease) override;
    bool keeps_unopened() const override { return true; }
    tensor::Lending lend(std::shared_ptr<const tensor::LentBlock> block) override;

    /// Called on the background executor when the server has closed these tensors of the client.
    void released(const std::vector<std::string>& leases);
    /// Called when the channel has ended. Memory that the server had is kept until the server's process has ended too.
    void ended();

private:
    struct Lending {
        std::shared_ptr<const tensor::LentBlock> block;
        /// Keeps the channel open on which the server will report that it closed the block.
        std::shared_ptr<const SharedMemory> memory;
    };
    using LendingMap = std::unordered_map<std::string, Lending>;
    struct State {
        bool ended = false, has_opened = false;
        std::string rejected;
        std::uint64_t next = 1;
        std::set<std::string> devices;
        std::shared_ptr<const UniqueFd> process;
        LendingMap lent;
    };

    SharedMemory& memory_;
    Guarded<State> state_;
};

/// The memory shared with one server: the server's segments that this client has mapped, the client's segments that the
/// server may map, device memory, and the local channel that manages them. Tensors that view the server's memory keep
/// this object alive.
/// Thread safety: all methods from any thread.
class SharedMemory final : public tensor::ShmPeer,
                           public local::SegmentListener,
                           public std::enable_shared_from_this<SharedMemory> {
public:
    /// Connects to the server. Throws local::ChannelGone with the reason: no process listens at `path`, or it rejected
    /// the client.
    static std::shared_ptr<SharedMemory> connect(const std::string& path, const std::string& token);
    ~SharedMemory() override;

    /// The session that names this client in HTTP requests. It keeps no state between calls.
    const std::string& session() const { return session_; }
    /// Opens a session that keeps state, bound to the same channel. Blocks. Throws local::ChannelGone,
    /// json_rpc::Error.
    std::string open_stateful_session();
    void session_closed(const std::string& session);
    /// Whether the session is bound to this channel.
    bool has(const std::string& session) const;
    const tensor::Transports& transports() const { return transports_; }
    /// For each transport whether it is usable, else the reason: as the server listed it, updated by failures since
    /// then.
    json_rpc::Json offered_transports() const;
    /// The device memory shared with the server.
    DeviceServer& devices() { return devices_; }
    /// Returns an uninitialised tensor in memory that the server may map, or in ordinary memory if that is exhausted.
    TensorRef make_tensor(std::span<const std::int64_t> shape, DType dtype);
    /// Seals memory that is to be published, and maps it. It does not count against the limit of this client's
    /// segments, because the server keeps it. When nothing here views it any more, the server is told.
    MemoryBlock hand_over(local::ImmutableMemory& written);
    /// Makes memory of this client immutable in which a tensor lies that is to be published. From then on writes of
    /// this process stay in it. Does nothing if the tensor takes less than half of its segment, because the server
    /// would keep all of it. False if the memory is not immutable afterwards: the server then copies the tensor.
    bool seal(const void* data, std::uint64_t bytes);
    /// Releases leases whose tensors will not be read.
    void abandon(const std::vector<std::string>& leases) { acknowledgements_.release(leases); }
    void confirm(const std::vector<std::string>& leases) { acknowledgements_.confirm(leases); }
    /// Asks which of its things the server does not use any more, by a request whose result has the list "free". Empty
    /// if the server does not answer. Blocks: call it on the background executor.
    std::vector<std::string> ask_free(const char* method, json_rpc::Json params) const noexcept;
    /// The error for a result in memory of a channel that has ended.
    static TensorExpired expired(std::string_view why);
    /// The transports that this memory offers, as Shared-Tensor-Accept lists them.
    std::string accepted() const;

    // tensor::ShmPeer
    tensor::Viability viable() const override;
    Borrowed borrow(const std::string& segment, const std::string& lease) override;
    local::PooledSegmentPointer take(std::uint64_t bytes) override;
    std::optional<local::SegmentPlace> find(const void* data, std::uint64_t bytes) const override;
    tensor::Lending lend(local::SegmentUsePointer segment, std::uint64_t bytes,
                         const codec::TensorPointer& tensor) override;

    // local::SegmentListener
    void segment_gone(const std::string& segment) override;

private:
    class Loan;
    /// A segment that this client lends to the server: its own, or received from another process. It stays listed
    /// until the segment is gone.
    struct Offered {
        std::vector<local::SegmentUsePointer> keep;  ///< empty while the server does not use it
        std::shared_future<void> known;              ///< ready when the server knows the segment
        std::size_t in_flight = 0;                   ///< messages that name it
        bool gone_untold = false;  ///< the server may know an earlier offer that it has to give up first
        bool asked_back = false;
        bool lent_again = false;  ///< since it was asked back: a `segment.free` may be of the time before
        bool uncertain = false;   ///< a message that names it may still reach the server

        /// Whether this process still uses it for itself.
        bool is_viewed() const;
    };
    using Received = std::unordered_map<std::string, std::shared_ptr<const local::ReceivedSegment>>;
    struct State {
        bool gone = false;
        std::unordered_map<std::string, Offered> offered;
    };

    SharedMemory(const std::string& path, std::string token);
    std::string open_session(bool keeps_state);
    void came_too_late(const json_rpc::Json& result);
    void not_offered(const std::string& segment, std::promise<void>& known, bool is_rejected);
    static void wait_for_offer(const std::shared_future<void>& ready);
    std::shared_ptr<const void> owner_of(local::PooledSegmentPointer segment);
    std::unique_ptr<local::Mapping> map(const std::string& segment, const std::string& lease);
    local::MappingCache::Source ask_for(const std::string& segment);
    /// Whether the server runs as this process's user or as root.
    bool trusts_server() const;
    std::shared_ptr<const local::ReceivedSegment> received(const std::string& segment, std::size_t bytes);
    static void end(std::unique_ptr<Loan> loan);
    /// A mapping whose tensor has ended: without written pages, with written pages, or read by another process that
    /// does not tell when it is done.
    enum class Ended { clean, written, retired };
    void give_back(Loan& loan, Ended how) noexcept;
    void finished(const std::string& segment, bool answered);
    void ask_back();
    void came_back(const std::vector<std::string>& segments);
    void told_free(const std::vector<std::string>& segments);
    void retire(const std::vector<std::string>& segments);
    static void in_background(std::weak_ptr<SharedMemory> memory, std::function<void(SharedMemory&)> work) noexcept;
    void notified(const json_rpc::Request& request);
    void tell_gone(const std::string& segment);
    void ended();

    const ProcessMark process_;
    const std::string token_;
    /// Which clients of this process's own servers get the server's memory without a copy: the clients of this user, or
    /// the caller that a server with ServerOptions::named_callers names.
    std::string principal_;  ///< does not change after the constructor
    LeaseAcknowledgements acknowledgements_;
    DeviceServer devices_;
    const std::unique_ptr<tensor::Transport> cuda_ipc_, shm_;
    const tensor::Transports transports_;
    local::MappingCache mappings_;
    Guarded<Received> received_;  ///< the server's segments that this process has passed on, by the server's names
    Guarded<State> state_;
    Guarded<std::set<std::string, std::less<>>> stateful_;  ///< the open sessions of open_stateful_session()
    std::unique_ptr<local::Channel> channel_;
    std::string session_;
    json_rpc::Json offered_transports_;
    std::unique_ptr<local::SegmentPool> pool_;
    std::unique_ptr<local::SegmentPool> handed_over_;  ///< immutable memory that the server keeps
};

}  // namespace shared_tensor::client
