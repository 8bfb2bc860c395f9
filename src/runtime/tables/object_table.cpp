#include "runtime/tables/object_table.hpp"

#include <utility>

#include "base/bytes/ids.hpp"

namespace shared_tensor::runtime {

namespace {

using std::chrono::duration_cast;
using std::chrono::milliseconds;

bool belongs_to(const HandleOwner& owner, std::optional<std::string_view> principal) {
    return !principal || owner.principal == *principal;
}

}  // namespace

std::optional<ObjectTable::Rejected> ObjectTable::rejection(const State& state, const HandleOwner& owner) const {
    if (state.handles.sums().entries >= limits_.max_handles) {
        return Rejected{"all clients together hold " + std::to_string(limits_.max_handles) +
                        " handles of objects, the most that this server keeps: wait until some are released"};
    }
    if (state.handles.sums_of(owner.principal).entries < limits_.max_per_principal()) return std::nullopt;
    return Rejected{owner.principal + " holds " + std::to_string(limits_.max_per_principal()) +
                    " handles of objects, the most that one may have: release some (object.release)"};
}

SteadyTime ObjectTable::deadline(const HandleOwner& owner) const {
    return owner.session.empty() ? clock_->now() + idle_ : Handles::kNever;
}

std::variant<std::string, ObjectTable::Rejected> ObjectTable::grant(const HandleOwner& owner, ObjectPointer object) {
    std::string id = random_id("o-");
    const SteadyTime now = clock_->now();
    return state_.with([&](State& state) -> std::variant<std::string, Rejected> {
        if (auto rejected = rejection(state, owner)) return std::move(*rejected);
        state.handles.add(id, owner.principal, 0, deadline(owner), Handle{owner, std::move(object), now});
        ++state.granted;
        return std::move(id);
    });
}

ObjectPointer ObjectTable::find(std::string_view id, std::string_view principal) {
    const SteadyTime now = clock_->now();
    return state_.with([&](State& state) -> ObjectPointer {
        Entry* const found = state.handles.find(id);
        if (found == nullptr || found->value.owner.principal != principal || found->deadline() <= now) return nullptr;
        ++found->value.uses;
        state.handles.set_deadline(*found, deadline(found->value.owner));
        return found->value.object;
    });
}

// The handles that end are destroyed without the lock, and their objects with them.

std::size_t ObjectTable::release(std::span<const std::string> ids, std::optional<std::string_view> principal) {
    std::vector<Handle> ended;
    ended.reserve(ids.size());  // may throw, so before handles are taken out
    state_.with([&](State& state) {
        for (const std::string& id : ids) {
            Entry* const found = state.handles.find(id);
            if (found != nullptr && belongs_to(found->value.owner, principal))
                ended.push_back(state.handles.take(*found));
        }
        state.released += ended.size();
    });
    return ended.size();
}

std::size_t ObjectTable::session_ended(std::string_view session) {
    if (session.empty()) return 0;
    const auto ended = state_.with([&](State& state) {
        auto taken = state.handles.take_if([&](const Entry& entry) { return entry.value.owner.session == session; });
        state.released += taken.size();
        return taken;
    });
    return ended.size();
}

std::size_t ObjectTable::expire() {
    const SteadyTime now = clock_->now();
    const auto ended = state_.with([&](State& state) {
        auto taken = state.handles.take_due(now);
        state.expired += taken.size();
        return taken;
    });
    return ended.size();
}

/// How many handles each object has.
ObjectTable::Counts ObjectTable::counts(const State& state) {
    Counts counts;
    for (const auto& [id, entry] : state.handles.entries())
        ++counts[entry.value.object->value.get()];
    return counts;
}

HandleInfo ObjectTable::info(const Entry& entry, const Counts& counts, SteadyTime now) {
    const Handle& handle = entry.value;
    HandleInfo info{entry.key(), handle.object->type, handle.owner.principal, handle.owner.pid};
    info.handles = counts.at(handle.object->value.get());
    info.uses = handle.uses;
    info.age = duration_cast<milliseconds>(now - handle.granted_at);
    if (handle.owner.session.empty()) info.expires_in = duration_cast<milliseconds>(entry.deadline() - now);
    return info;
}

std::optional<HandleInfo> ObjectTable::info(std::string_view id, std::optional<std::string_view> principal) const {
    const SteadyTime now = clock_->now();
    return state_.with([&](const State& state) -> std::optional<HandleInfo> {
        const Entry* const found = state.handles.find(id);
        if (found == nullptr || !belongs_to(found->value.owner, principal) || found->deadline() <= now)
            return std::nullopt;
        return info(*found, counts(state), now);
    });
}

std::vector<HandleInfo> ObjectTable::list(std::optional<std::string_view> principal) const {
    const SteadyTime now = clock_->now();
    return state_.with([&](const State& state) {
        const Counts of_all = counts(state);
        std::vector<HandleInfo> all;
        for (const auto& [id, entry] : state.handles.entries()) {
            if (belongs_to(entry.value.owner, principal) && entry.deadline() > now)
                all.push_back(info(entry, of_all, now));
        }
        return all;
    });
}

ObjectStats ObjectTable::stats() const {
    return state_.with([](const State& state) {
        return ObjectStats{state.handles.sums().entries, counts(state).size(), state.granted, state.released,
                           state.expired};
    });
}

}  // namespace shared_tensor::runtime
