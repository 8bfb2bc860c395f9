#include "runtime/tables/object_table.hpp"

#include <new>

#include "base/bytes/ids.hpp"

namespace shared_tensor::runtime {

namespace {

using std::chrono::duration_cast;
using std::chrono::milliseconds;

bool belongs_to(const HandleOwner& owner, std::optional<std::string_view> principal) {
    return !principal || owner.principal == *principal;
}

const void* identity(const ObjectPointer& object) { return object->value.get(); }

}  // namespace

std::optional<ObjectTable::Rejected> ObjectTable::rejection(const State& state, const HandleOwner& owner) const {
    if (state.handles.sums().entries >= limits_.max_handles) {
        return Rejected{"all clients together hold " + std::to_string(limits_.max_handles) +
                        " handles of objects, the most that this server keeps: wait until some are released"};
    }
    const auto mine = state.by_principal.find(owner.principal);
    if (mine == state.by_principal.end() || mine->second < limits_.max_per_principal()) return std::nullopt;
    return Rejected{owner.principal + " holds " + std::to_string(limits_.max_per_principal()) +
                    " handles of objects, the most that one may have: release some (object.release)"};
}

SteadyTime ObjectTable::deadline(const HandleOwner& owner) const {
    return owner.session.empty() ? clock_->now() + idle_ : Handles::kNever;
}

std::variant<std::string, ObjectTable::Rejected> ObjectTable::grant(const HandleOwner& owner, ObjectPointer object) {
    std::string id = random_id("o-");
    const SteadyTime now = clock_->now();
    auto rejected = state_.with([&](State& state) {
        auto too_many = rejection(state, owner);
        if (too_many) return too_many;
        try {
            std::size_t& of_object = state.by_object[identity(object)];
            std::size_t& of_principal = state.by_principal[owner.principal];
            state.handles.add(id, owner.session, 0, deadline(owner), Handle{owner, std::move(object), now});
            ++of_object;
            ++of_principal;
        } catch (const std::bad_alloc&) {  // no count stays of a handle that is not there
            const auto is_zero = [](const auto& count) { return count.second == 0; };
            std::erase_if(state.by_object, is_zero);
            std::erase_if(state.by_principal, is_zero);
            throw;
        }
        ++state.stats.granted;
        return too_many;
    });
    if (rejected) return std::move(*rejected);
    return id;
}

template <class Choose>
std::size_t ObjectTable::end(std::uint64_t ObjectStats::*counted, Choose choose) {
    std::vector<ObjectPointer> ended;  // destroyed without the lock
    const auto drop_one = [](auto& counts, const auto& key) {
        const auto count = counts.find(key);
        if (--count->second == 0) counts.erase(count);
    };
    state_.with([&](State& state) {
        choose(state.handles, [&](Entry& entry) {
            ended.emplace_back();  // may throw, so before the handle is taken out
            drop_one(state.by_object, identity(entry.value.object));
            drop_one(state.by_principal, entry.value.owner.principal);
            ended.back() = state.handles.take(entry).object;
        });
        state.stats.*counted += ended.size();
    });
    return ended.size();
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

std::size_t ObjectTable::release(std::span<const std::string> ids, std::optional<std::string_view> principal) {
    return end(&ObjectStats::released, [&](Handles& handles, const auto& end_one) {
        for (const std::string& id : ids) {
            Entry* const found = handles.find(id);
            if (found != nullptr && belongs_to(found->value.owner, principal)) end_one(*found);
        }
    });
}

std::size_t ObjectTable::session_ended(std::string_view session) {
    if (session.empty()) return 0;
    return end(&ObjectStats::released, [&](Handles& handles, const auto& end_one) {
        while (Entry* const found = handles.any_of(session))
            end_one(*found);
    });
}

std::size_t ObjectTable::expire() {
    const SteadyTime now = clock_->now();
    return end(&ObjectStats::expired, [&](Handles& handles, const auto& end_one) {
        while (Entry* const found = handles.first_due(now))
            end_one(*found);
    });
}

HandleInfo ObjectTable::info(const State& state, const Entry& entry, SteadyTime now) {
    const Handle& handle = entry.value;
    HandleInfo info{entry.key(), handle.object->type, handle.owner.principal, handle.owner.pid};
    info.in_session = !handle.owner.session.empty();
    info.handles = state.by_object.at(identity(handle.object));
    info.uses = handle.uses;
    info.age = duration_cast<milliseconds>(now - handle.granted_at);
    if (!info.in_session) info.expires_in = duration_cast<milliseconds>(entry.deadline() - now);
    return info;
}

std::optional<HandleInfo> ObjectTable::info(std::string_view id, std::optional<std::string_view> principal) const {
    const SteadyTime now = clock_->now();
    return state_.with([&](const State& state) -> std::optional<HandleInfo> {
        const Entry* const found = state.handles.find(id);
        if (found == nullptr || !belongs_to(found->value.owner, principal)) return std::nullopt;
        if (found->deadline() <= now) return std::nullopt;
        return info(state, *found, now);
    });
}

std::vector<HandleInfo> ObjectTable::list(std::optional<std::string_view> principal) const {
    const SteadyTime now = clock_->now();
    return state_.with([&](const State& state) {
        std::vector<HandleInfo> all;
        for (const auto& [id, entry] : state.handles.entries()) {
            if (belongs_to(entry.value.owner, principal) && entry.deadline() > now)
                all.push_back(info(state, entry, now));
        }
        return all;
    });
}

ObjectStats ObjectTable::stats() const {
    return state_.with([](const State& state) {
        ObjectStats stats = state.stats;
        stats.handles = state.handles.sums().entries;
        stats.objects = state.by_object.size();
        return stats;
    });
}

}  // namespace shared_tensor::runtime
