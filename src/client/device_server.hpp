#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "tensor/devices/device_peer.hpp"
#include "util/guarded.hpp"
#include "util/unique_fd.hpp"

namespace shared_tensor::client {

/// Device memory between us and one server: what we lend it for its calls, and what of its own we read.
/// Thread safety: all methods from any thread, after connected().
class DeviceServer final : public tensor::DevicePeer {
public:
    /// How the server is spoken to.
    struct Channel {
        std::function<void(const std::string&lease)> confirm, release;  ///< soon; must not block
        /// Which of these it does not use any more; it says of the others later. Blocks. Throws what it likes.
        std::function<std::vector<std::string>(const std::vector<std::string>& leases, bool lost)> recall;
        std::function<void(std::function<void()>)> in_background;
        /// Keeps the channel open, and us: tensors of the server live no longer than that.
        std::function<std::shared_ptr<const void>()> keep;
    };
    explicit DeviceServer(Channel channel);

    /// `process`: the server's. `devices`: those that it sees, by UUID.
    void connected(pid_t process, const std::vector<std::string>& devices);

    /// Memory of the server's was opened here: what cannot be opened later has a reason of its own.
    void opened();
    /// The first thing that was tried could not be opened, here or there: nothing is shared any more, and viable() says
    /// why. After opened() nothing changes: it may be this one block.
    void not_opened(const std::string& reason, bool by_server);
    /// Why nothing is shared, if that was found out so; else empty.
    std::string refused() const;

    // tensor::DevicePeer
    tensor::Viability viable() const override;
    bool sees(const std::string& uuid) const override;
    std::uint64_t owner() const override { return owner_; }
    std::function<void()> use(const std::string& lease) override;
    bool keeps_unopened() const override { return true; }
    Lent lend(std::shared_ptr<const tensor::LentBlock> block) override;

    /// The server has closed these tensors of ours.
    void released(const std::vector<std::string>& leases);
    /// The channel is gone: what the server had is kept until its process is gone too.
    void ended();

private:
    class InFlight;
    struct Lending {
        std::shared_ptr<const tensor::LentBlock> block;
        std::shared_ptr<const void> channel;  ///< on which the server will say that it closed it
    };
    using LendingMap = std::unordered_map<std::string, Lending>;
    struct State {
        bool ended = false, has_opened = false;
        std::string refused;
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
