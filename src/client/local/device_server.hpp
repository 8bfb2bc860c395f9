#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/concurrency/guarded.hpp"
#include "base/system/process_mark.hpp"
#include "base/system/unique_fd.hpp"
#include "tensor/device/device_peer.hpp"

namespace shared_tensor::client {

class SharedMemory;

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
    std::uint64_t owner() const override { return owner_; }
    std::function<void()> use(const std::string& lease) override;
    bool keeps_unopened() const override { return true; }
    Lent lend(std::shared_ptr<const tensor::LentBlock> block) override;

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
    const std::uint64_t owner_;
    Guarded<State> state_;
};

}  // namespace shared_tensor::client
