#include "runtime/functions/function_table.hpp"

#include <algorithm>

namespace shared_tensor::runtime {

namespace {

bool takes_streams(const FunctionRecord& function) {
    const auto parameters = function.parameters();
    return std::any_of(parameters.begin(), parameters.end(),
                       [](const ParameterInfo& parameter) { return parameter.flow != Flow::value; });
}

FunctionTable::EntryPointer make_entry(const FunctionPointer& function) {
    const std::size_t limit = function->options().concurrency;
    return std::make_shared<const FunctionTable::Entry>(
        FunctionTable::Entry{function, limit > 0 ? tasks::make_group(limit) : nullptr, std::make_shared<RunTime>(),
                             takes_streams(*function)});
}

}  // namespace

FunctionTable::FunctionTable(const Registry& registry) {
    state_.with([&](State& state) {
        for (const FunctionPointer& function : registry.functions())
            state.by_name.emplace(function->name(), make_entry(function));
    });
}

FunctionTable::EntryPointer FunctionTable::find(std::string_view name) const {
    return state_.with([&](const State& state) -> EntryPointer {
        const auto found = state.by_name.find(name);
        return found == state.by_name.end() ? nullptr : found->second;
    });
}

std::vector<FunctionTable::EntryPointer> FunctionTable::all() const {
    std::vector<EntryPointer> all;
    state_.with([&](const State& state) {
        all.reserve(state.by_name.size());
        for (const auto& [name, entry] : state.by_name)
            all.push_back(entry);
    });
    std::sort(all.begin(), all.end(),
              [](const auto& a, const auto& b) { return a->shared->name() < b->shared->name(); });
    return all;
}

std::size_t FunctionTable::size() const {
    return state_.with([](const State& state) { return state.by_name.size(); });
}

std::uint64_t FunctionTable::version() const {
    return state_.with([](const State& state) { return state.version; });
}

void FunctionTable::replace(const std::vector<FunctionPointer>& gone, const std::vector<FunctionPointer>& come) {
    Registry registry;  // rejects invalid functions
    std::vector<EntryPointer> entries;
    for (const FunctionPointer& function : come) {
        registry.add(function);
        entries.push_back(make_entry(function));
    }
    std::string taken, places;
    std::vector<EntryPointer> old;  // destroyed after the lock is released
    state_.with([&](State& state) {
        const auto goes = [&](const EntryPointer& entry) {
            return std::find(gone.begin(), gone.end(), entry->shared) != gone.end();
        };
        for (const EntryPointer& entry : entries) {
            const auto found = state.by_name.find(entry->shared->name());
            if (found == state.by_name.end() || goes(found->second)) continue;
            taken = found->first;
            places = found->second->shared->where() + " and " + entry->shared->where();
            return;
        }
        std::erase_if(state.by_name, [&](auto& one) {
            if (!goes(one.second)) return false;
            old.push_back(std::move(one.second));
            return true;
        });
        for (EntryPointer& entry : entries) {
            std::string name(entry->shared->name());
            state.by_name.emplace(std::move(name), std::move(entry));
        }
        ++state.version;
    });
    if (!taken.empty()) throw NameTaken(std::move(taken), places);
}

}  // namespace shared_tensor::runtime
