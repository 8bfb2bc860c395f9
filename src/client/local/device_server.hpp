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
#include "base/system/unique_fd.hpp"
#include "tensor/device/device_peer.hpp"

namespace shared_tensor::client {

/// The device memory shared with one server: blocks that this client lends to the server, and blocks of the server that
/// this client reads.
/// Thread safety: all methods from any thread, after connected().
class DeviceServer final : public tensor::DevicePeer {
public:
    /// The functions that send messages to the server.
    struct Channel {
        std::function<void(const std::string&lease)> confirm, release;  ///< send soon; must not block
        /// Asks which of `leases` the server no longer uses, and returns them; the server reports the others later.
        /// `lost`: the message that named the leases was not answered, so the server must reject them from now on.
        /// Blocks. Throws std::exception, json_rpc::Error.
        std::function<std::vector<std::string>(const std::vector<std::string>& leases, bool lost)> recall;
        std::function<void(std::function<void()>)> in_background;
        /// The result keeps the channel and this object alive: tensors of the server live only as long as the channel.
        std::function<std::shared_ptr<const void>()> keep;
    };
    explicit DeviceServer(Channel channel);

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

    /// Called when the server has closed these tensors of the client.
    void released(const std::vector<std::string>& leases);
    /// Called when the channel has ended. Memory that the server had is kept until the server's process has ended too.
    void ended();

private:
    class InFlight;
    struct Lending {
        std::shared_ptr<const tensor::LentBlock> block;
        std::shared_ptr<const void> channel;  ///< on which the server will report that it closed the block
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
    void finished(const std::string& lease, bool answered);

    const Channel channel_;
    const std::uint64_t owner_;
    Guarded<State> state_;
};

}  // namespace shared_tensor::client
