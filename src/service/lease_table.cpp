#include "service/lease_table.hpp"

#include <algorithm>
#include <utility>

#include "util/ids.hpp"

namespace shared_tensor::service {

namespace {

constexpr SteadyTime kNever = SteadyTime::max();

void retire(const std::vector<std::unique_ptr<LeasedBytes>>& held) {
    for (const auto& one : held)
        one->retire();
}

}  // namespace

LeaseTable::~LeaseTable() {
    state_.with([](const State& state) {
        for (const auto& [id, lease] : state.leases)
            lease.held->retire();
    });
}

std::optional<LeaseTable::Refused> LeaseTable::refusal(const State& state, const Lessee& lessee) const {
    if (state.leases.size() >= limits_.max_leases) {
        return Refused{"all clients together hold " + std::to_string(limits_.max_leases) +
                       " leases, the most that this server grants: wait until some are released"};
    }
    const auto mine = state.by_client.find(lessee.client);
    if (mine == state.by_client.end() || mine->second.size() < limits_.max_per_client) return std::nullopt;
    return Refused{"this client holds " + std::to_string(limits_.max_per_client) +
                   " leases, the most that one may have: release tensors that are not needed"};
}

std::variant<std::string, LeaseTable::Refused> LeaseTable::grant(const Lessee& lessee, std::string_view way,
                                                                 std::uint64_t bytes,
                                                                 std::unique_ptr<LeasedBytes> held) {
    std::string id = random_id("l-");
    const SteadyTime now = clock_->now();
    auto refused = state_.with([&](State& state) {
        auto too_many = refusal(state, lessee);
        if (too_many) return too_many;
        Lease& lease = state.leases[id];
        lease = {lessee, std::string(way), bytes, std::move(held), false, now, kNever};
        state.by_client[lessee.client].insert(id);
        set_end(state, id, lease, now + limits_.confirm_within);
        ++state.stats.leases;
        ++state.stats.granted;
        state.stats.bytes += bytes;
        return too_many;
    });
    if (refused) return std::move(*refused);
    return id;
}

void LeaseTable::set_end(State& state, const std::string& id, Lease& lease, SteadyTime end) {
    state.by_end.erase({lease.expires_at, id});
    lease.expires_at = end;
    if (end != kNever) state.by_end.emplace(end, id);
}

LeaseTable::Lease* LeaseTable::find(State& state, std::string_view client, const std::string& id) {
    const auto found = state.leases.find(id);
    return found != state.leases.end() && found->second.lessee.client == client ? &found->second : nullptr;
}

void LeaseTable::remove(State& state, const std::string& id, Held& held) {
    const auto found = state.leases.find(id);
    Lease& lease = found->second;
    state.by_end.erase({lease.expires_at, id});
    const auto mine = state.by_client.find(lease.lessee.client);
    mine->second.erase(id);
    if (mine->second.empty()) state.by_client.erase(mine);
    --state.stats.leases;
    state.stats.bytes -= lease.bytes;
    held.push_back(std::move(lease.held));
    state.leases.erase(found);
}

template <class Use>
std::size_t LeaseTable::for_each(std::string_view client, std::span<const std::string> ids, Use use) {
    return state_.with([&](State& state) {
        std::size_t count = 0;
        for (const std::string& id : ids) {
            Lease* lease = find(state, client, id);
            if (lease == nullptr) continue;
            ++count;
            use(state, id, *lease);
        }
        return count;
    });
}

codec::TensorPointer LeaseTable::tensor(std::string_view id, std::string_view principal) const {
    return state_.with([&](const State& state) -> codec::TensorPointer {
        const auto found = state.leases.find(id);
        if (found == state.leases.end() || found->second.lessee.principal != principal) return nullptr;
        return found->second.held->tensor();
    });
}

std::size_t LeaseTable::confirm(std::string_view client, std::span<const std::string> ids) {
    const SteadyTime now = clock_->now();
    return for_each(client, ids, [&](State& state, const std::string& id, Lease& lease) {
        if (std::exchange(lease.confirmed, true)) return;
        set_end(state, id, lease, lease.lessee.watched ? kNever : now + limits_.default_ttl);
    });
}

std::size_t LeaseTable::release(std::string_view client, std::span<const std::string> ids) {
    Held held;
    state_.with([&](State& state) {
        held.reserve(ids.size());
        for (const std::string& id : ids) {
            if (find(state, client, id) != nullptr) remove(state, id, held);
        }
        state.stats.released += held.size();
    });
    return held.size();
}

std::size_t LeaseTable::renew(std::string_view client, std::span<const std::string> ids,
                              std::optional<std::chrono::milliseconds> ttl) {
    const SteadyTime end =
        clock_->now() + std::clamp(ttl.value_or(limits_.default_ttl), std::chrono::milliseconds(0), limits_.max_ttl);
    return for_each(client, ids, [&](State& state, const std::string& id, Lease& lease) {
        lease.confirmed = true;
        set_end(state, id, lease, lease.lessee.watched ? kNever : end);
    });
}

std::size_t LeaseTable::revoke(std::span<const std::string> ids) {
    Held held;
    state_.with([&](State& state) {
        held.reserve(ids.size());
        for (const std::string& id : ids) {
            if (state.leases.contains(id)) remove(state, id, held);
        }
        state.stats.revoked += held.size();
    });
    retire(held);
    return held.size();
}

std::size_t LeaseTable::client_ended(std::string_view client, bool process_is_gone) {
    Held held;
    state_.with([&](State& state) {
        const auto mine = state.by_client.find(std::string(client));
        if (mine == state.by_client.end()) return;
        const std::vector<std::string> ids(mine->second.begin(), mine->second.end());
        held.reserve(ids.size());
        for (const std::string& id : ids)
            remove(state, id, held);
        state.stats.expired += held.size();
    });
    if (!process_is_gone) retire(held);
    return held.size();
}

std::size_t LeaseTable::expire() {
    const SteadyTime now = clock_->now();
    Held held;
    state_.with([&](State& state) {
        while (!state.by_end.empty() && state.by_end.begin()->first <= now) {
            const std::string id = state.by_end.begin()->second;
            remove(state, id, held);
        }
        state.stats.expired += held.size();
    });
    retire(held);
    return held.size();
}

LeaseInfo LeaseTable::info(const std::string& id, const Lease& lease, SteadyTime now) const {
    using std::chrono::duration_cast;
    using std::chrono::milliseconds;
    LeaseInfo info;
    info.id = id;
    info.principal = lease.lessee.principal;
    info.client = lease.lessee.client;
    info.way = lease.way;
    info.pid = lease.lessee.pid;
    info.bytes = lease.bytes;
    info.confirmed = lease.confirmed;
    info.age = duration_cast<milliseconds>(now - lease.granted_at);
    if (lease.expires_at != kNever) {
        info.expires_in = duration_cast<milliseconds>(std::max(lease.expires_at - now, SteadyTime::duration::zero()));
    }
    return info;
}

std::optional<LeaseInfo> LeaseTable::find(const std::string& id) const {
    const SteadyTime now = clock_->now();
    return state_.with([&](const State& state) -> std::optional<LeaseInfo> {
        const auto found = state.leases.find(id);
        if (found == state.leases.end()) return std::nullopt;
        return info(id, found->second, now);
    });
}

std::vector<LeaseInfo> LeaseTable::list(std::optional<std::string_view> principal) const {
    const SteadyTime now = clock_->now();
    return state_.with([&](const State& state) {
        std::vector<LeaseInfo> all;
        for (const auto& [id, lease] : state.leases) {
            if (!principal || lease.lessee.principal == *principal) all.push_back(info(id, lease, now));
        }
        return all;
    });
}

LeaseStats LeaseTable::stats() const {
    return state_.with([](const State& state) { return state.stats; });
}

}  // namespace shared_tensor::service
