#include "runtime/functions/function_table.hpp"

#include <algorithm>
#include <array>
#include <atomic>

#include "base/bytes/utf8.hpp"
#include "runtime/batches/batches.hpp"
#include "runtime/functions/open_rpc.hpp"

namespace shared_tensor::runtime {

bool takes_streams(const FunctionRecord& function) {
    const auto parameters = function.parameters();
    return std::any_of(parameters.begin(), parameters.end(),
                       [](const ParameterInfo& parameter) { return parameter.flow != Flow::value; });
}

namespace {

FunctionTable::EntryPointer make_entry(const FunctionPointer& function) {
    static std::atomic<std::uint64_t> last_number{0};
    const FunctionOptions& options = function->options();
    const std::size_t limit = options.concurrency;
    FunctionTable::Entry entry{function, limit > 0 ? tasks::make_group(limit) : nullptr,
                               std::make_shared<RunTime>(std::string(function->name())), takes_streams(*function),
                               ++last_number};
    if (options.batch_rows > 0) entry.batches = std::make_shared<BatchQueue>(options.batch_rows, options.batch_wait);
    return std::make_shared<const FunctionTable::Entry>(std::move(entry));
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
    return state_.with([&](const State& state) {
        std::vector<EntryPointer> all;
        for (const auto& [name, entry] : state.by_name)
            all.push_back(entry);
        return all;
    });
}

std::size_t FunctionTable::size() const {
    return state_.with([](const State& state) { return state.by_name.size(); });
}

std::uint64_t FunctionTable::version() const { return state_.get(&State::version); }

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

namespace shared_tensor {

namespace {

constexpr std::array<std::string_view, 11> kReservedPrefixes = {
    "rpc.", "server.", "task.", "lease.", "session.", "log.", "tensor.", "object.", "cache.", "model.", "stream."};
constexpr std::size_t kMaxNameBytes = 200;

bool is_name_character(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.' ||
           c == '-';
}

[[noreturn]] void reject(const FunctionRecord& function, const std::string& why) {
    throw std::invalid_argument("cannot share \"" + std::string(function.name()) + "\" (" + function.where() +
                                "): " + why);
}

void check_batching(const FunctionRecord& function) {
    constexpr std::chrono::seconds kLongestWait{10};
    const FunctionOptions& options = function.options();
    if (options.batch_rows == 0) return;
    if (runtime::takes_streams(function)) reject(function, "a function with streams cannot be batched");
    if (options.stateful) reject(function, "a stateful function cannot be batched: its calls depend on each other");
    if (options.runs == execution::inline_)
        reject(function, "a function that runs inline cannot be batched, because its calls do not wait");
    if (options.batch_wait.count() < 0 || options.batch_wait > kLongestWait)
        reject(function, "calls of a batched function wait for others for at most 10 s");
}

void check_name(const FunctionRecord& function) {
    const std::string_view name = function.name();
    const auto reject = [&](const std::string& why) { shared_tensor::reject(function, why); };
    if (name.empty() || name.size() > kMaxNameBytes || !std::all_of(name.begin(), name.end(), is_name_character)) {
        reject("a name has 1 to 200 of the characters a-z A-Z 0-9 _ . -; give one with SHARE_AS");
    }
    for (const std::string_view prefix : kReservedPrefixes) {
        if (name.starts_with(prefix)) reject("names that begin with " + std::string(prefix) + " are the daemon's own");
    }
    const auto parameters = function.parameters();
    for (std::size_t i = 0; i < parameters.size(); ++i) {
        const auto same = [&](const ParameterInfo& other) { return other.name == parameters[i].name; };
        if (std::any_of(parameters.begin(), parameters.begin() + static_cast<std::ptrdiff_t>(i), same)) {
            reject("two parameters are called \"" + parameters[i].name + '"');
        }
    }
}

/// What rpc.discover tells of the function has to be text.
void check_texts(const FunctionRecord& function) {
    if (!is_utf8(function.options().doc)) reject(function, "its documentation is not UTF-8");
    const auto parameters = function.parameters();
    for (std::size_t i = 0; i < parameters.size(); ++i) {
        if (!is_utf8(parameters[i].name)) reject(function, "the name of a parameter is not UTF-8");
        if (parameters[i].required || parameters[i].flow != Flow::value) continue;
        try {
            (void)runtime::written_schema([&](ValueWriter to) { function.default_value(i, to); });
        } catch (const std::invalid_argument& error) {
            reject(function, "the default of its parameter \"" + parameters[i].name + "\": " + error.what());
        }
    }
}

/// Returns "file.cpp:12", followed by the plugin if the function is from one.
std::string place_of(const FunctionRecord& function, const std::string& module) {
    return function.where() + (module.empty() ? "" : " (" + module + ')');
}

}  // namespace

void Registry::add(std::shared_ptr<const FunctionRecord> function) { add(Entry{std::move(function), {}}); }

void Registry::add(Entry entry) {
    check_name(*entry.function);
    check_batching(*entry.function);
    check_texts(*entry.function);
    const auto [place, added] = functions_.try_emplace(std::string(entry.function->name()), entry);
    if (!added) {
        throw std::invalid_argument("two functions are shared as \"" + place->first +
                                    "\": " + place_of(*place->second.function, place->second.module) + " and " +
                                    place_of(*entry.function, entry.module) +
                                    "; give one of them another name with SHARE_AS");
    }
}

void Registry::add_records(const detail::ShareRecord* records, const std::string& module) {
    for (const detail::ShareRecord* record = records; record != nullptr; record = record->next) {
        // Records live as long as the process: nothing to delete.
        add({std::shared_ptr<const FunctionRecord>(std::shared_ptr<void>(), record->function), module});
    }
}

void Registry::use(const detail::Framework* framework) {
    const bool known = std::find(frameworks_.begin(), frameworks_.end(), framework) != frameworks_.end();
    if (framework != nullptr && !known) frameworks_.push_back(framework);
}

const FunctionRecord* Registry::find(std::string_view name) const {
    const auto found = functions_.find(name);
    return found == functions_.end() ? nullptr : found->second.function.get();
}

std::vector<std::shared_ptr<const FunctionRecord>> Registry::functions() const {
    std::vector<std::shared_ptr<const FunctionRecord>> all;
    all.reserve(functions_.size());
    for (const auto& [name, entry] : functions_)
        all.push_back(entry.function);
    std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a->name() < b->name(); });
    return all;
}

}  // namespace shared_tensor
