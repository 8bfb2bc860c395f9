#include "client/local/shared_memory.hpp"

#include <poll.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include <shared_tensor/value.hpp>

#include "base/concurrency/background.hpp"
#include "base/log/log.hpp"
#include "tensor/device/devices.hpp"

namespace shared_tensor::client {

namespace {

constexpr std::chrono::milliseconds kLooksAgain{10}, kLooksAtLeastEach{5'000};

/// Frees what the server's process had open when that process has ended: mostly a moment after the end of its channel.
void free_after(std::shared_ptr<const UniqueFd> process, std::chrono::milliseconds delay) {
    pollfd end{process->get(), POLLIN, 0};
    if (::poll(&end, 1, 0) > 0) return tensor::Devices::of_process().deferred_frees().sweep();
    background_executor().post_after(delay, [process = std::move(process), delay]() mutable {
        free_after(std::move(process), std::min(delay * 2, kLooksAtLeastEach));
    });
}

}  // namespace

InFlight::~InFlight() {
    if (!process_.is_here()) return;
    background_executor().post([finished = std::move(finished_), answered = answered_] {
        try {
            finished(answered);
        } catch (const std::exception& error) {  // no memory
            log::debug("the server is not asked for memory: ", error.what());
        }
    });
}

DeviceServer::DeviceServer(SharedMemory& memory) : memory_(memory) {}

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
    memory_.confirm({lease});
    return [memory = memory_.shared_from_this(), lease] { memory->abandon({lease}); };
}

tensor::Lending DeviceServer::lend(std::shared_ptr<const tensor::LentBlock> block) {
    tensor::Devices::of_process().deferred_frees().sweep();
    auto memory = memory_.shared_from_this();
    const std::weak_ptr<SharedMemory> weak = memory;
    const auto lease = state_.with([&](State& state) {
        if (state.ended) return std::string();
        std::string made = "a-" + std::to_string(state.next++);
        state.lent.emplace(made, Lending{std::move(block), std::move(memory)});
        return made;
    });
    if (lease.empty()) throw tensor::CannotLend("the local channel is closed");
    // If the server still uses the tensor when the message has ended, it reports the end of the use later.
    return {lease, std::make_shared<InFlight>([weak, lease](bool answered) {
                if (const auto alive = weak.lock())
                    alive->devices().released(alive->ask_free(
                        "lease.recall", {{"leases", json_rpc::Json::array({lease})}, {"lost", !answered}}));
            })};
}

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
    devices.forget(owner());
    if (lent->empty()) return;
    background_executor().post([lent = std::move(lent), process = std::move(process)]() mutable {
        lent.reset();
        if (process != nullptr) free_after(std::move(process), kLooksAgain);
    });
}

}  // namespace shared_tensor::client
