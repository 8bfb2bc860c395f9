#include "runtime/tables/lease_table.hpp"

#include <algorithm>
#include <map>
#include <utility>

namespace shared_tensor::runtime {

namespace {

void retire(const std::vector<LeasedBytes>& held, bool process_is_gone) {
    for (const LeasedBytes& one : held)
        one.retire(process_is_gone);
}

}  // namespace

LeaseTable::~LeaseTable() {
    state_.with([](const State& state) {
        for (const auto& [id, entry] : state.leases.entries())
            entry.value.held.retire(false);
    });
}

std::string LeaseTable::too_many() const {
    return "all clients together hold " + std::to_string(limits_.max_leases) +
           " leases, the most that this server grants: wait until some are released, or raise --max-leases";
}

std::string LeaseTable::full() const {
    const std::size_t leases = stats().leases;
    return leases >= limits_.max_leases ? too_many() : std::string();
}

std::optional<LeaseTable::Rejected> LeaseTable::rejection(const State& state, const LeaseHolder& lease_holder,
                                                          std::uint64_t bytes) const {
    if (state.leases.sums().entries >= limits_.max_leases) return Rejected{too_many()};
    const bool fits =
        state.unwatched_bytes <= limits_.max_kept_bytes && bytes <= limits_.max_kept_bytes - state.unwatched_bytes;
    if (!lease_holder.watched && !fits) {
        return Rejected{"tensors of " + std::to_string(state.unwatched_bytes) +
                        " bytes are kept for clients without a local channel, and at most " +
                        std::to_string(limits_.max_kept_bytes) + " may be: release some (lease.release)"};
    }
    if (state.leases.sums_of(lease_holder.client).entries < limits_.max_per_client()) return std::nullopt;
    return Rejected{"this client holds " + std::to_string(limits_.max_per_client()) +
                    " leases, the most that one may have: release tensors that are not needed"};
}

std::variant<std::string, LeaseTable::Rejected> LeaseTable::grant(const LeaseHolder& lease_holder,
                                                                  std::string_view transport, std::uint64_t bytes,
                                                                  LeasedBytes held) {
    const SteadyTime now = clock_->now();
    const SteadyTime deadline = now + (lease_holder.watched ? limits_.confirm_within : LeaseLimits::kTtl);
    return state_.with([&](State& state) -> std::variant<std::string, Rejected> {
        if (auto rejected = rejection(state, lease_holder, bytes)) return std::move(*rejected);
        Lease lease{lease_holder, transport, std::move(held), now, !lease_holder.watched};
        const Entry& entry = state.leases.add(state.ids.next(), lease_holder.client, bytes, deadline, std::move(lease));
        if (!lease_holder.watched) state.unwatched_bytes += bytes;
        ++state.stats.granted;
        return entry.key();
    });
}

LeaseTable::Entry* LeaseTable::find(Leases& leases, std::string_view client, const std::string& id) {
    Entry* const found = leases.find(id);
    return found != nullptr && found->owner() == client ? found : nullptr;
}

template <class Use>
std::size_t LeaseTable::for_each(std::string_view client, std::span<const std::string> ids, Use use) {
    return state_.with([&](State& state) {
        std::size_t count = 0;
        for (const std::string& id : ids) {
            Entry* const found = find(state.leases, client, id);
            if (found == nullptr) continue;
            ++count;
            use(state.leases, *found);
        }
        return count;
    });
}

template <class Choose>
LeaseTable::Memory LeaseTable::end(bool counts_as_expired, Choose choose) {
    Memory held;
    state_.with([&](State& state) {
        choose(state.leases, [&](Entry& entry) {
            held.emplace_back();  // may throw, so before the lease is taken out
            if (!entry.value.lease_holder.watched) state.unwatched_bytes -= entry.bytes();
            held.back() = state.leases.take(entry).held;
        });
        if (counts_as_expired) state.stats.expired += held.size();
    });
    return held;
}

codec::TensorPointer LeaseTable::tensor(std::string_view id, std::string_view principal) {
    const SteadyTime end = clock_->now() + LeaseLimits::kTtl;
    return state_.with([&](State& state) -> codec::TensorPointer {
        Entry* const found = state.leases.find(id);
        if (found == nullptr || found->value.lease_holder.principal != principal) return nullptr;
        if (!found->value.lease_holder.watched && found->deadline() < end) state.leases.set_deadline(*found, end);
        return found->value.held.tensor;
    });
}

std::size_t LeaseTable::confirm(std::string_view client, std::span<const std::string> ids) {
    const SteadyTime end = clock_->now() + LeaseLimits::kTtl;
    return for_each(client, ids, [&](Leases& leases, Entry& entry) {
        if (std::exchange(entry.value.confirmed, true)) return;
        leases.set_deadline(entry, entry.value.lease_holder.watched ? Leases::kNever : end);
    });
}

/// Ends leases of the client, or of any client.
LeaseTable::Memory LeaseTable::end_ids(std::span<const std::string> ids, std::optional<std::string_view> client) {
    return end(false, [&](Leases& leases, const auto& end_one) {
        for (const std::string& id : ids) {
            Entry* const found = client ? find(leases, *client, id) : leases.find(id);
            if (found != nullptr) end_one(*found);
        }
    });
}

std::size_t LeaseTable::release(std::string_view client, std::span<const std::string> ids, After after) {
    const Memory held = end_ids(ids, client);
    if (after == After::retired) retire(held, false);
    return held.size();
}

std::size_t LeaseTable::revoke(std::span<const std::string> ids) {
    const Memory held = end_ids(ids, std::nullopt);
    retire(held, false);
    return held.size();
}

std::size_t LeaseTable::renew(std::string_view client, std::span<const std::string> ids,
                              std::optional<std::chrono::milliseconds> ttl) {
    const SteadyTime end =
        clock_->now() + std::clamp(ttl.value_or(LeaseLimits::kTtl), std::chrono::milliseconds(0), LeaseLimits::kMaxTtl);
    return for_each(client, ids, [&](Leases& leases, Entry& entry) {
        entry.value.confirmed = true;
        leases.set_deadline(entry, entry.value.lease_holder.watched ? Leases::kNever : end);
    });
}

std::size_t LeaseTable::client_ended(std::string_view client, bool process_is_gone) {
    const Memory held = end(true, [&](Leases& leases, const auto& end_one) {
        while (Entry* const found = leases.any_of(client))
            end_one(*found);
    });
    retire(held, process_is_gone);
    return held.size();
}

std::size_t LeaseTable::session_ended(std::string_view session) {
    const bool is_unwatched = state_.with([&](const State& state) {
        const Entry* const found = state.leases.any_of(session);
        return found != nullptr && !found->value.lease_holder.watched;
    });
    return is_unwatched ? client_ended(session, true) : 0;
}

std::size_t LeaseTable::expire() {
    const SteadyTime now = clock_->now();
    const Memory held = end(true, [&](Leases& leases, const auto& end_one) {
        while (Entry* const found = leases.first_due(now))
            end_one(*found);
    });
    retire(held, false);
    return held.size();
}

LeaseInfo LeaseTable::info(const Entry& entry, SteadyTime now) {
    using std::chrono::duration_cast;
    using std::chrono::milliseconds;
    const Lease& lease = entry.value;
    LeaseInfo info;
    info.id = entry.key();
    info.principal = lease.lease_holder.principal;
    info.client = lease.lease_holder.client;
    info.transport = lease.transport;
    info.pid = lease.lease_holder.pid;
    info.bytes = entry.bytes();
    info.confirmed = lease.confirmed;
    info.age = duration_cast<milliseconds>(now - lease.granted_at);
    if (entry.deadline() != Leases::kNever)
        info.expires_in = duration_cast<milliseconds>(std::max(entry.deadline() - now, SteadyTime::duration::zero()));
    return info;
}

std::optional<LeaseInfo> LeaseTable::find(const std::string& id) const {
    const SteadyTime now = clock_->now();
    return state_.with([&](const State& state) -> std::optional<LeaseInfo> {
        const Entry* const found = state.leases.find(id);
        if (found == nullptr) return std::nullopt;
        return info(*found, now);
    });
}

std::vector<LeaseInfo> LeaseTable::list(std::optional<std::string_view> principal) const {
    const SteadyTime now = clock_->now();
    return state_.with([&](const State& state) {
        std::vector<LeaseInfo> all;
        for (const auto& [id, entry] : state.leases.entries()) {
            if (!principal || entry.value.lease_holder.principal == *principal) all.push_back(info(entry, now));
        }
        return all;
    });
}

LeaseStats LeaseTable::stats() const {
    return state_.with([](const State& state) {
        LeaseStats stats = state.stats;
        stats.leases = state.leases.sums().entries;
        stats.bytes = state.leases.sums().bytes;
        return stats;
    });
}

std::vector<LeaseTable::Held> LeaseTable::held() const {
    return state_.with([](const State& state) {
        std::map<std::string_view, Held> in_host_memory;
        std::vector<Held> all;
        for (const auto& [id, entry] : state.leases.entries()) {
            const std::string& principal = entry.value.lease_holder.principal;
            const codec::TensorPointer& tensor = entry.value.held.tensor;
            if (tensor != nullptr && tensor->on_device()) {
                all.push_back({principal, tensor, 1, entry.bytes()});
                continue;
            }
            Held& sum = in_host_memory.try_emplace(principal, Held{principal}).first->second;
            ++sum.leases;
            sum.bytes += entry.bytes();
        }
        for (auto& [principal, sum] : in_host_memory)
            all.push_back(std::move(sum));
        return all;
    });
}

}  // namespace shared_tensor::runtime
