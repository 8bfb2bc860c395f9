#include "runtime/calls/call_groups.hpp"

namespace shared_tensor::runtime {

tasks::Groups CallGroups::of(const FunctionTable::Entry& function, std::span<const codec::JsonSource::Use> objects,
                             const std::string& session) {
    tasks::Groups groups;
    if (function.group) groups.emplace_back(function.group);
    bool alone = false;
    for (const auto& [object, access] : objects) {
        const bool exclusive = access == Access::exclusive;
        groups.emplace_back(of_object(object), exclusive ? tasks::Claim::kAll : 1);
        alone |= exclusive;
    }
    // An object that is passed to be changed replaces the instance of the session.
    if (function.shared->options().stateful && !alone && !session.empty()) groups.emplace_back(of_session(session));
    return groups;
}

std::shared_ptr<tasks::Group> CallGroups::of_session(const std::string& session) {
    return sessions_.with([&](auto& groups) {
        std::shared_ptr<tasks::Group> group = groups[session].lock();
        if (!group) groups[session] = group = tasks::make_group(1);
        return group;
    });
}

/// The group lives while calls that use the object wait or run. They keep the object alive, so its address is unique.
std::shared_ptr<tasks::Group> CallGroups::of_object(const ObjectPointer& object) {
    constexpr std::size_t kAnyNumber = 1'000'000;  // of calls at once: more than any queue holds
    return objects_.with([&](auto& groups) {
        auto& slot = groups[object->value.get()];
        std::shared_ptr<tasks::Group> group = slot.lock();
        if (!group) slot = group = tasks::make_group(kAnyNumber);
        return group;
    });
}

void CallGroups::sweep() {
    const auto drop_unused = [](auto& groups) {
        std::erase_if(groups, [](const auto& entry) { return entry.second.expired(); });
    };
    sessions_.with(drop_unused);
    objects_.with(drop_unused);
}

}  // namespace shared_tensor::runtime
