#include "server/local/local_client.hpp"

#include <utility>

#include <shared_tensor/value.hpp>

#include "tensor/device/devices.hpp"

namespace shared_tensor::server {

namespace {

constexpr std::size_t kMaxLost = 100'000;

}  // namespace

std::string lend_under_lease(runtime::LeaseTable& leases, const runtime::LeaseHolder& holder,
                             tensor::TransportKind transport, std::uint64_t bytes, runtime::LeasedBytes memory,
                             const std::function<bool(const std::string& lease)>& is_alive) {
    auto granted = leases.grant(holder, tensor::name_of(transport), bytes, std::move(memory));
    if (auto* rejected = std::get_if<runtime::LeaseTable::Rejected>(&granted))
        throw tensor::CannotLend(std::move(rejected->reason));
    auto lease = std::move(std::get<std::string>(granted));
    if (is_alive(lease)) return lease;
    leases.release(holder.client, std::span(&lease, 1), runtime::LeaseTable::After::retired);
    throw tensor::CannotLend(kChannelGone);
}

DeviceClient::DeviceClient(runtime::LeaseTable& leases, runtime::LeaseHolder lease_holder,
                           const std::vector<std::string>& devices, TellReleased tell_released)
    : leases_(&leases),
      lease_holder_(std::move(lease_holder)),
      devices_(devices.begin(), devices.end()),
      tell_released_(std::move(tell_released)),
      process_(tensor::watch_process(lease_holder_.pid)) {}

tensor::Viability DeviceClient::viable() const {
    if (process_ == nullptr)
        return {"the client lives in another PID namespace: its end cannot be detected, nor its handles opened"};
    if (devices_.empty()) return {"the client named no device when it opened its session"};
    return state_.with([](const State& state) { return tensor::Viability{state.ended ? kChannelGone : ""}; });
}

std::function<void()> DeviceClient::use(const std::string& lease) {
    const char* got = state_.with([&](State& state) -> const char* {
        if (lease.empty()) return "nothing";
        if (state.ended || state.lost.contains(lease)) return "an id that the client recalled";
        ++state.used[lease].count;
        return nullptr;
    });
    if (got != nullptr) throw InvalidValue("lease", "the id under which the client lends this tensor", got);
    return [self = shared_from_this(), lease] { self->done(lease); };
}

void DeviceClient::done(const std::string& lease) {
    const bool wanted = state_.with([&](State& state) {
        const auto found = state.used.find(lease);
        if (found == state.used.end() || --found->second.count > 0) return false;
        const bool waits = found->second.wanted_back && !state.ended;
        state.used.erase(found);
        return waits;
    });
    if (wanted) tell_released_(lease);
}

std::vector<std::string> DeviceClient::recall(const std::vector<std::string>& leases, bool lost) {
    return state_.with([&](State& state) {
        std::vector<std::string> free;
        for (const std::string& lease : leases) {
            if (lost && state.lost.size() >= kMaxLost) continue;  // the client keeps the tensor until the channel ends
            if (lost) state.lost.insert(lease);
            const auto found = state.used.find(lease);
            if (found != state.used.end()) {
                found->second.wanted_back = true;
            } else {
                free.push_back(lease);
            }
        }
        return free;
    });
}

tensor::Lending DeviceClient::lend(std::shared_ptr<const tensor::LentBlock> block) {
    if (const auto can = viable(); !can) throw tensor::CannotLend(can.reason);
    // The client's process may have the block open, and freeing an open block is undefined.
    const auto retire = [block, process = process_](bool process_is_gone) {
        if (!process_is_gone) tensor::Devices::of_process().deferred_frees().keep(block, process);
    };
    auto lease = lend_under_lease(*leases_, lease_holder_, tensor::TransportKind::cuda_ipc, block->bytes(),
                                  {block->handle(), retire}, [&](const std::string& granted) {
                                      return state_.with([&](State& state) {
                                          if (!state.ended) state.lent.emplace(granted, block);
                                          return !state.ended;
                                      });
                                  });
    return {std::move(lease), nullptr};
}

void DeviceClient::closed(const std::vector<std::string>& leases) {
    std::vector<std::shared_ptr<const tensor::LentBlock>> blocks;
    state_.with([&](State& state) {
        for (const std::string& lease : leases) {
            const auto found = state.lent.find(lease);
            if (found == state.lent.end()) continue;
            if (auto block = found->second.lock()) blocks.push_back(std::move(block));
            state.lent.erase(found);
        }
    });
    for (const auto& block : blocks)
        tensor::Devices::of_process().deferred_frees().free(block.get());
}

void DeviceClient::ended() {
    state_.with([](State& state) {
        state.ended = true;
        state.lent.clear();
        state.lost.clear();
    });
    tensor::Devices::of_process().forget(owner());
}

}  // namespace shared_tensor::server
