#include "service/object_table.hpp"

#include "util/ids.hpp"

namespace shared_tensor::service {

namespace {

using std::chrono::duration_cast;
using std::chrono::milliseconds;

bool belongs_to(const HandleOwner& owner, std::optional<std::string_view> principal) {
    return !principal || owner.principal == *principal;
}

const void* identity(const ObjectPointer& object) { return object->value.get(); }

}  // namespace

std::optional<ObjectTable::Refused> ObjectTable::refusal(const State& state, const HandleOwner& owner) const {
    if (state.handles.size() >= limits_.max_handles) {
        return Refused{"all clients together hold " + std::to_string(limits_.max_handles) +
                       " handles of objects, the most that this server keeps: wait until some are released"};
    }
    const auto mine = state.by_principal.find(owner.principal);
    if (mine == state.by_principal.end() || mine->second < limits_.max_per_principal()) return std::nullopt;
    return Refused{owner.principal + " holds " + std::to_string(limits_.max_per_principal()) +
                   " handles of objects, the most that one may have: release some (object.release)"};
}

std::variant<std::string, ObjectTable::Refused> ObjectTable::grant(const HandleOwner& owner, ObjectPointer object) {
    std::string id = random_id("o-");
    const SteadyTime now = clock_->now();
    auto refused = state_.with([&](State& state) {
        auto too_many = refusal(state, owner);
        if (too_many) return too_many;
        ++state.by_object[identity(object)];
        ++state.by_principal[owner.principal];
        if (!owner.session.empty()) state.by_session[owner.session].insert(id);
        Handle& handle = state.handles[id];
        handle = {owner, std::move(object), now, SteadyTime::max(), 0};
        set_end(state, id, handle);
        ++state.stats.granted;
        return too_many;
    });
    if (refused) return std::move(*refused);
    return id;
}

void ObjectTable::set_end(State& state, const std::string& id, Handle& handle) const {
    if (!handle.owner.session.empty()) return;
    state.by_end.erase({handle.expires_at, id});
    handle.expires_at = clock_->now() + idle_;
    state.by_end.emplace(handle.expires_at, id);
}

void ObjectTable::remove(State& state, const std::string& id, Ended& ended) {
    const auto found = state.handles.find(id);
    Handle& handle = found->second;
    state.by_end.erase({handle.expires_at, id});
    const auto drop_one = [](auto& counts, const auto& key) {
        const auto count = counts.find(key);
        if (--count->second == 0) counts.erase(count);
    };
    drop_one(state.by_object, identity(handle.object));
    drop_one(state.by_principal, handle.owner.principal);
    if (const auto session = state.by_session.find(handle.owner.session); session != state.by_session.end()) {
        session->second.erase(id);
        if (session->second.empty()) state.by_session.erase(session);
    }
    ended.push_back(std::move(handle.object));
    state.handles.erase(found);
}

ObjectPointer ObjectTable::find(std::string_view id, std::string_view principal) {
    const SteadyTime now = clock_->now();
    return state_.with([&](State& state) -> ObjectPointer {
        const auto found = state.handles.find(id);
        if (found == state.handles.end() || found->second.owner.principal != principal) return nullptr;
        if (found->second.expires_at <= now) return nullptr;
        ++found->second.uses;
        set_end(state, found->first, found->second);
        return found->second.object;
    });
}

std::size_t ObjectTable::release(std::span<const std::string> ids, std::optional<std::string_view> principal) {
    Ended ended;
    state_.with([&](State& state) {
        ended.reserve(ids.size());
        for (const std::string& id : ids) {
            const auto found = state.handles.find(id);
            if (found != state.handles.end() && belongs_to(found->second.owner, principal)) remove(state, id, ended);
        }
        state.stats.released += ended.size();
    });
    return ended.size();
}

std::size_t ObjectTable::session_ended(std::string_view session) {
    Ended ended;
    state_.with([&](State& state) {
        const auto mine = state.by_session.find(std::string(session));
        if (mine == state.by_session.end()) return;
        const std::unordered_set<std::string> ids = mine->second;
        for (const std::string& id : ids)
            remove(state, id, ended);
        state.stats.released += ended.size();
    });
    return ended.size();
}

std::size_t ObjectTable::expire() {
    const SteadyTime now = clock_->now();
    Ended ended;
    state_.with([&](State& state) {
        while (!state.by_end.empty() && state.by_end.begin()->first <= now) {
            const std::string id = state.by_end.begin()->second;
            remove(state, id, ended);
        }
        state.stats.expired += ended.size();
    });
    return ended.size();
}

HandleInfo ObjectTable::info(const State& state, const std::string& id, const Handle& handle) const {
    const SteadyTime now = clock_->now();
    HandleInfo info{id, handle.object->type, handle.owner.principal, handle.owner.pid, !handle.owner.session.empty()};
    info.handles = state.by_object.at(identity(handle.object));
    info.uses = handle.uses;
    info.age = duration_cast<milliseconds>(now - handle.granted_at);
    if (!info.in_session) info.expires_in = duration_cast<milliseconds>(handle.expires_at - now);
    return info;
}

std::optional<HandleInfo> ObjectTable::info(std::string_view id, std::optional<std::string_view> principal) const {
    return state_.with([&](const State& state) -> std::optional<HandleInfo> {
        const auto found = state.handles.find(id);
        if (found == state.handles.end() || !belongs_to(found->second.owner, principal)) return std::nullopt;
        if (found->second.expires_at <= clock_->now()) return std::nullopt;
        return info(state, found->first, found->second);
    });
}

std::vector<HandleInfo> ObjectTable::list(std::optional<std::string_view> principal) const {
    const SteadyTime now = clock_->now();
    return state_.with([&](const State& state) {
        std::vector<HandleInfo> all;
        for (const auto& [id, handle] : state.handles) {
            if (belongs_to(handle.owner, principal) && handle.expires_at > now) all.push_back(info(state, id, handle));
        }
        return all;
    });
}

ObjectStats ObjectTable::stats() const {
    return state_.with([](const State& state) {
        ObjectStats stats = state.stats;
        stats.handles = state.handles.size();
        stats.objects = state.by_object.size();
        return stats;
    });
}

}  // namespace shared_tensor::service
