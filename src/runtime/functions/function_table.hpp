#pragma once

#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <shared_tensor/registry.hpp>

#include "base/concurrency/guarded.hpp"
#include "runtime/calls/run_time.hpp"
#include "runtime/tasks/worker_pool.hpp"

namespace shared_tensor::runtime {

using FunctionPointer = std::shared_ptr<const FunctionRecord>;

/// A function cannot be shared, because another function has its name.
class NameTaken : public std::invalid_argument {
public:
    NameTaken(std::string name, const std::string& where)
        : std::invalid_argument("two functions are shared as \"" + name + "\"; " + where), name_(std::move(name)) {}
    const std::string& name() const { return name_; }

private:
    std::string name_;
};

/// The functions that can be called now. Functions may be added and removed while others run; a call keeps its function
/// alive. Thread safety: all methods from any thread; none blocks.
class FunctionTable {
public:
    struct Entry {
        FunctionPointer shared;
        std::shared_ptr<tasks::Group> group;  ///< for concurrency(n); null: no limit
        std::shared_ptr<RunTime> run_time;
        bool streams = false;
    };
    using EntryPointer = std::shared_ptr<const Entry>;

    explicit FunctionTable(const Registry& registry);

    /// Returns null if no function has that name.
    EntryPointer find(std::string_view name) const;
    /// Returns all functions, sorted by name.
    std::vector<EntryPointer> all() const;
    std::size_t size() const;
    /// A number that changes with every change of the table.
    std::uint64_t version() const;

    /// Removes the functions `gone` and adds the functions `come` in one step: no call sees half of the change.
    /// Functions of `gone` that are not in the table are ignored. Throws NameTaken, or std::invalid_argument for a name
    /// that is reserved or malformed, and then changes nothing.
    void replace(const std::vector<FunctionPointer>& gone, const std::vector<FunctionPointer>& come);

private:
    struct NameHash {
        using is_transparent = void;
        std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
    };
    using Map = std::unordered_map<std::string, EntryPointer, NameHash, std::equal_to<>>;
    struct State {
        Map by_name;
        std::uint64_t version = 1;
    };

    Guarded<State> state_;
};

}  // namespace shared_tensor::runtime
