#include "client/local/device_server.hpp"

#include <poll.h>

#include <atomic>
#include <chrono>
#include <utility>

#include <shared_tensor/value.hpp>

#include "base/log/log.hpp"
#include "base/system/process_mark.hpp"
#include "protocol/json_rpc/error.hpp"
#include "tensor/device/devices.hpp"

namespace shared_tensor::client {

namespace {

constexpr std::chrono::milliseconds kEndTakes{1'000};

/// Ids that differ from the ids of a server in the same process.
std::uint64_t next_owner() {
    static std::atomic<std::uint64_t> last{std::uint64_t{1} << 63};
    return ++last;
}

}  // namespace

/// A message that names a tensor of this client.
class DeviceServer::InFlight final : public tensor::Pin {
public:
    InFlight(DeviceServer& server, std::string lease)
        : server_(&server), channel_(server.channel_.keep()), lease_(std::move(lease)) {}
    InFlight(const InFlight&) = delete;
    InFlight& operator=(const InFlight&) = delete;
    ~InFlight() override {
        if (!process_.is_here()) return;  // a forked child's copy: the message belongs to the parent
        server_->channel_.in_background([server = server_, channel = channel_, lease = lease_, answered = answered_] {
            server->finished(lease, answered);
        });
    }
    void answered() noexcept override { answered_ = true; }

private:
    const ProcessMark process_;
    DeviceServer* const server_;
    const std::shared_ptr<const void> channel_;  // keeps `server_` alive
    const std::string lease_;
    bool answered_ = false;
};

DeviceServer::DeviceServer(Channel channel) : channel_(std::move(channel)), owner_(next_owner()) {}

void DeviceServer::connected(pid_t process, const std::vector<std::string>& devices) {
    auto watched = tensor::watch_process(process);
    state_.with([&](State& state) {
        state.devices = {devices.begin(), devices.end()};
        state.process = std::move(watched);
    });
}

void DeviceServer::opened() {
    state_.with([](State& state) { state.has_opened = true; });
}

void DeviceServer::not_opened(const std::string& reason, bool by_server) {
    std::string rejected = (by_server ? "the server cannot open this process's memory: "
                                      : "this process cannot open the server's memory: ") +
                           reason;
    const bool is_new = state_.with([&](State& state) {
        if (!state.rejected.empty() || state.has_opened) return false;
        state.rejected = rejected;
        return true;
    });
    if (is_new) log::warn("tensors on devices go through host memory from now on: ", rejected);
}

std::string DeviceServer::rejected() const {
    return state_.with([](const State& state) { return state.rejected; });
}

tensor::Viability DeviceServer::viable() const {
    return state_.with([](const State& state) -> tensor::Viability {
        if (state.ended) return {"the local channel is closed"};
        if (!state.rejected.empty()) return {state.rejected};
        if (state.devices.empty()) return {"the server shares no device"};
        if (state.process != nullptr) return {};
        return {"the server lives in another PID namespace: its end cannot be detected, nor its handles opened"};
    });
}

bool DeviceServer::sees(const std::string& uuid) const {
    return state_.with([&](const State& state) { return state.devices.contains(uuid); });
}

std::function<void()> DeviceServer::use(const std::string& lease) {
    if (lease.empty()) throw InvalidValue("lease", "the id of a lease beside cuda_ipc", "nothing");
    channel_.confirm(lease);
    return [this, channel = channel_.keep(), lease] { channel_.release(lease); };
}

tensor::DevicePeer::Lent DeviceServer::lend(std::shared_ptr<const tensor::LentBlock> block) {
    tensor::Devices::of_process().deferred_frees().sweep();
    auto channel = channel_.keep();
    const auto lease = state_.with([&](State& state) {
        if (state.ended) return std::string();
        std::string made = "a-" + std::to_string(state.next++);
        state.lent.emplace(made, Lending{std::move(block), std::move(channel)});
        return made;
    });
    if (lease.empty()) throw tensor::CannotLend("the local channel is closed");
    return {lease, std::make_shared<InFlight>(*this, lease)};
}

/// Called when the server has read the message, or when it is unknown whether it has. Asks whether the server still
/// uses the tensor; if it does, the server reports the end later.
void DeviceServer::finished(const std::string& lease, bool answered) {
    try {
        released(channel_.recall({lease}, !answered));
    } catch (const std::exception& error) {
        log::debug("could not ask the server for a tensor: ", error.what());
    } catch (const json_rpc::Error& error) {
        log::debug("could not ask the server for a tensor: ", error.message);
    }
}

/// Runs on the background executor, because it may destroy the last owner of the channel.
void DeviceServer::released(const std::vector<std::string>& leases) {
    std::vector<Lending> gone;  // destroyed outside the lock
    state_.with([&](State& state) {
        for (const std::string& lease : leases) {
            const auto found = state.lent.find(lease);
            if (found == state.lent.end()) continue;
            gone.push_back(std::move(found->second));
            state.lent.erase(found);
        }
    });
}

void DeviceServer::ended() {
    auto lent = std::make_shared<LendingMap>();
    std::shared_ptr<const UniqueFd> process;
    state_.with([&](State& state) {
        state.ended = true;
        lent->swap(state.lent);
        process = state.process;
    });
    auto& devices = tensor::Devices::of_process();
    for (const auto& [lease, one] : *lent)
        devices.deferred_frees().keep(one.block, process);
    devices.forget(owner_);
    if (lent->empty()) return;
    channel_.in_background([lent = std::move(lent), process = std::move(process)]() mutable {
        lent.reset();
        // The channel usually ends because the server's process ends. A moment later memory that it had open is free.
        pollfd end{process != nullptr ? process->get() : -1, POLLIN, 0};
        if (::poll(&end, 1, static_cast<int>(kEndTakes.count())) > 0)
            tensor::Devices::of_process().deferred_frees().sweep();
    });
}

}  // namespace shared_tensor::client
