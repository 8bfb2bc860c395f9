#include "service/lease_table.hpp"

#include <algorithm>
#include <utility>

namespace shared_tensor::service {

namespace {

constexpr SteadyTime kNever = SteadyTime::max();

void retire(const std::vector<std::unique_ptr<LeasedBytes>>& held, bool process_is_gone) {
    for (const auto& one : held)
        one->retire(process_is_gone);
}

}  // namespace

LeaseTable::~LeaseTable() {
    state_.with([](const State& state) {
        for (const auto& [id, lease] : state.leases)
            lease.held->retire(false);
    });
}

std::string LeaseTable::too_many() const {
    return "all clients together hold " + std::to_string(limits_.max_leases) +
           " leases, the most that this server grants: wait until some are released, or raise --max-leases";
}

std::string LeaseTable::full() const {
    const bool is_full = state_.with([&](const State& state) { return state.leases.size() >= limits_.max_leases; });
    return is_full ? too_many() : std::string();
}

std::optional<LeaseTable::Refused> LeaseTable::refusal(const State& state, const Client& client,
                                                       std::uint64_t bytes) const {
    if (state.leases.size() >= limits_.max_leases) return Refused{too_many()};
    const bool fits =
        state.unwatched_bytes <= limits_.max_kept_bytes && bytes <= limits_.max_kept_bytes - state.unwatched_bytes;
    if (!client.lessee.watched && !fits) {
        return Refused{"tensors of " + std::to_string(state.unwatched_bytes) +
                       " bytes are kept for clients without a local channel, and at most " +
                       std::to_string(limits_.max_kept_bytes) + " may be: release some (lease.release)"};
    }
    if (client.leases.size() < limits_.max_per_client()) return std::nullopt;
    return Refused{"this client holds " + std::to_string(limits_.max_per_client()) +
                   " leases, the most that one may have: release tensors that are not needed"};
}

std::variant<std::string, LeaseTable::Refused> LeaseTable::grant(const Lessee& lessee, std::string_view way,
                                                                 std::uint64_t bytes,
                                                                 std::unique_ptr<LeasedBytes> held) {
    const SteadyTime now = clock_->now();
    return state_.with([&](State& state) -> std::variant<std::string, Refused> {
        auto client = state.clients.find(lessee.client);
        if (client == state.clients.end()) client = state.clients.emplace(lessee.client, Client{lessee, {}}).first;
        if (auto refused = refusal(state, client->second, bytes)) {
            if (client->second.leases.empty()) state.clients.erase(client);
            return std::move(*refused);
        }
        const bool watched = lessee.watched;
        Lease lease{&client->second, way, bytes, std::move(held), !watched, now, kNever};
        Entry& entry = *state.leases.emplace(state.ids.next(), std::move(lease)).first;
        client->second.leases.insert(&entry);
        set_end(state, entry, now + (watched ? limits_.confirm_within : LeaseLimits::kTtl));
        if (!watched) state.unwatched_bytes += bytes;
        ++state.stats.leases;
        ++state.stats.granted;
        state.stats.bytes += bytes;
        return entry.first;
    });
}

void LeaseTable::set_end(State& state, Entry& entry, SteadyTime end) {
    if (entry.second.expires_at != kNever) state.by_end.erase({entry.second.expires_at, &entry});
    entry.second.expires_at = end;
    if (end != kNever) state.by_end.emplace(end, &entry);
}

LeaseTable::Leases::iterator LeaseTable::find(State& state, std::string_view client, const std::string& id) {
    const auto found = state.leases.find(id);
    return found != state.leases.end() && found->second.client->lessee.client == client ? found : state.leases.end();
}

void LeaseTable::remove(State& state, Leases::iterator found, Held& held) {
    Lease& lease = found->second;
    set_end(state, *found, kNever);
    Client& client = *lease.client;
    if (!client.lessee.watched) state.unwatched_bytes -= lease.bytes;
    client.leases.erase(&*found);
    if (client.leases.empty()) state.clients.erase(state.clients.find(client.lessee.client));
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
            const auto found = find(state, client, id);
            if (found == state.leases.end()) continue;
            ++count;
            use(state, *found);
        }
        return count;
    });
}

codec::TensorPointer LeaseTable::tensor(std::string_view id, std::string_view principal) {
    const SteadyTime end = clock_->now() + LeaseLimits::kTtl;
    return state_.with([&](State& state) -> codec::TensorPointer {
        const auto found = state.leases.find(id);
        if (found == state.leases.end() || found->second.client->lessee.principal != principal) return nullptr;
        Lease& lease = found->second;
        if (!lease.client->lessee.watched && lease.expires_at < end) set_end(state, *found, end);
        return lease.held->tensor();
    });
}

std::size_t LeaseTable::confirm(std::string_view client, std::span<const std::string> ids) {
    const SteadyTime now = clock_->now();
    return for_each(client, ids, [&](State& state, Entry& entry) {
        if (std::exchange(entry.second.confirmed, true)) return;
        set_end(state, entry, entry.second.client->lessee.watched ? kNever : now + LeaseLimits::kTtl);
    });
}

std::size_t LeaseTable::release(std::string_view client, std::span<const std::string> ids, After after) {
    Held held;
    state_.with([&](State& state) {
        held.reserve(ids.size());
        for (const std::string& id : ids) {
            const auto found = find(state, client, id);
            if (found != state.leases.end()) remove(state, found, held);
        }
        state.stats.released += held.size();
    });
    if (after == After::retired) retire(held, false);
    return held.size();
}

std::size_t LeaseTable::renew(std::string_view client, std::span<const std::string> ids,
                              std::optional<std::chrono::milliseconds> ttl) {
    const SteadyTime end =
        clock_->now() + std::clamp(ttl.value_or(LeaseLimits::kTtl), std::chrono::milliseconds(0), LeaseLimits::kMaxTtl);
    return for_each(client, ids, [&](State& state, Entry& entry) {
        entry.second.confirmed = true;
        set_end(state, entry, entry.second.client->lessee.watched ? kNever : end);
    });
}

std::size_t LeaseTable::revoke(std::span<const std::string> ids) {
    Held held;
    state_.with([&](State& state) {
        held.reserve(ids.size());
        for (const std::string& id : ids) {
            const auto found = state.leases.find(id);
            if (found != state.leases.end()) remove(state, found, held);
        }
        state.stats.revoked += held.size();
    });
    retire(held, false);
    return held.size();
}

std::size_t LeaseTable::client_ended(std::string_view client, bool process_is_gone) {
    Held held;
    state_.with([&](State& state) {
        const auto mine = state.clients.find(client);
        if (mine == state.clients.end()) return;
        const std::vector<Entry*> entries(mine->second.leases.begin(), mine->second.leases.end());
        held.reserve(entries.size());
        for (const Entry* entry : entries)
            remove(state, state.leases.find(entry->first), held);
        state.stats.expired += held.size();
    });
    retire(held, process_is_gone);
    return held.size();
}

std::size_t LeaseTable::session_ended(std::string_view session) {
    const bool is_such = state_.with([&](const State& state) {
        const auto found = state.clients.find(session);
        return found != state.clients.end() && !found->second.lessee.watched;
    });
    return is_such ? client_ended(session, true) : 0;
}

std::size_t LeaseTable::expire() {
    const SteadyTime now = clock_->now();
    Held held;
    state_.with([&](State& state) {
        while (!state.by_end.empty() && state.by_end.begin()->first <= now) {
            remove(state, state.leases.find(state.by_end.begin()->second->first), held);
        }
        state.stats.expired += held.size();
    });
    retire(held, false);
    return held.size();
}

LeaseInfo LeaseTable::info(const std::string& id, const Lease& lease, SteadyTime now) const {
    using std::chrono::duration_cast;
    using std::chrono::milliseconds;
    LeaseInfo info;
    info.id = id;
    const Lessee& lessee = lease.client->lessee;
    info.principal = lessee.principal;
    info.client = lessee.client;
    info.way = lease.way;
    info.pid = lessee.pid;
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
            if (!principal || lease.client->lessee.principal == *principal) all.push_back(info(id, lease, now));
        }
        return all;
    });
}

LeaseStats LeaseTable::stats() const {
    return state_.with([](const State& state) { return state.stats; });
}

}  // namespace shared_tensor::service
