#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include <shared_tensor/limits.hpp>

#include "base/concurrency/clock.hpp"
#include "base/concurrency/guarded.hpp"
#include "base/concurrency/owned_table.hpp"
#include "protocol/codec/value.hpp"

namespace shared_tensor::runtime {

/// The owner of a handle.
struct HandleOwner {
    std::string principal;
    std::string session = {};  ///< the handles end with it; empty: they end when they are idle
    int pid = 0;               ///< 0: unknown
};

using shared_tensor::ObjectLimits;

struct HandleInfo {
    std::string id, type, principal;
    int pid = 0;
    std::size_t handles = 0;  ///< number of handles of the same object, of all owners
    std::uint64_t uses = 0;
    std::chrono::milliseconds age{0};
    std::optional<std::chrono::milliseconds> expires_in{};  ///< none: it ends with its session
};

struct ObjectStats {
    std::size_t handles = 0, objects = 0;
    std::uint64_t granted = 0, released = 0, expired = 0;
};

/// The handles that clients hold of objects. Each time that a client gets an object, it gets a new handle ("o-" and 128
/// random bits). The handle belongs to the client's principal and never works again after its end. An object lives as
/// long as one of its handles, or longer if other code holds it.
///
/// Objects are destroyed without a lock. Thread safety: all methods from any thread. They block only while the
/// destructor of an object runs.
class ObjectTable {
public:
    /// `idle`: a handle without a session ends when it was not used for this time.
    ObjectTable(ObjectLimits limits, std::chrono::milliseconds idle, const Clock& clock = real_clock())
        : limits_(limits), idle_(idle), clock_(&clock) {}

    struct Rejected {
        std::string reason;  ///< for people: which limit, and what to do
    };
    std::variant<std::string, Rejected> grant(const HandleOwner& owner, ObjectPointer object);

    /// Returns the object of a handle of the principal, and counts as use. Returns null if there is no such handle.
    ObjectPointer find(std::string_view id, std::string_view principal);
    /// Ends the handles `ids` that belong to `principal` (to any principal if it is not given). Returns how many ended.
    std::size_t release(std::span<const std::string> ids, std::optional<std::string_view> principal);
    std::size_t session_ended(std::string_view session);
    /// Maintenance: ends handles that were idle for too long.
    std::size_t expire();

    /// Describes a handle of `principal` (of any principal if it is not given). Does not count as use.
    std::optional<HandleInfo> info(std::string_view id, std::optional<std::string_view> principal) const;
    /// Describes all handles of `principal` (of all principals if it is not given), sorted by id.
    std::vector<HandleInfo> list(std::optional<std::string_view> principal) const;
    ObjectStats stats() const;

private:
    struct Handle {
        HandleOwner owner;
        ObjectPointer object;
        SteadyTime granted_at{};
        std::uint64_t uses = 0;
    };
    using Handles = OwnedTable<Handle>;  ///< the owner of an entry is its principal
    using Entry = Handles::Entry;
    struct State {
        Handles handles;
        std::uint64_t granted = 0, released = 0, expired = 0;
    };
    std::optional<Rejected> rejection(const State& state, const HandleOwner& owner) const;
    SteadyTime deadline(const HandleOwner& owner) const;
    using Counts = std::unordered_map<const void*, std::size_t>;
    static Counts counts(const State& state);
    static HandleInfo info(const Entry& entry, const Counts& counts, SteadyTime now);

    const ObjectLimits limits_;
    const std::chrono::milliseconds idle_;
    const Clock* clock_;
    Guarded<State> state_;
};

}  // namespace shared_tensor::runtime
