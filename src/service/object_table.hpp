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

#include "codec/value.hpp"
#include "util/clock.hpp"
#include "util/guarded.hpp"
#include "util/owned_table.hpp"

namespace shared_tensor::service {

/// Whose handle it is.
struct HandleOwner {
    std::string principal;
    std::string session = {};  ///< its handles end with it; empty: when they are not used for a time
    int pid = 0;               ///< 0: unknown
};

using shared_tensor::ObjectLimits;

struct HandleInfo {
    std::string id, type, principal;
    int pid = 0;
    bool in_session = false;
    std::size_t handles = 1;  ///< of the same object, everybody's
    std::uint64_t uses = 0;
    std::chrono::milliseconds age{0};
    std::optional<std::chrono::milliseconds> expires_in{};  ///< none: it ends with its session
};

struct ObjectStats {
    std::size_t handles = 0, objects = 0;
    std::uint64_t granted = 0, released = 0, expired = 0;
};

/// The handles that clients have of objects. Each time that a client is given an object it gets a handle of its own
/// (128 random bits behind "o-"), which belongs to its principal and never works again after its end. An object lives
/// as long as one of its handles, and longer where something else holds it.
///
/// Objects are let go without a lock. Thread safety: all methods from any thread; none blocks, but for what ending an
/// object takes.
class ObjectTable {
public:
    /// `idle`: end of a handle without a session that is not used.
    ObjectTable(ObjectLimits limits, std::chrono::milliseconds idle, const Clock& clock = real_clock())
        : limits_(limits), idle_(idle), clock_(&clock) {}

    struct Refused {
        std::string reason;  ///< for people: which limit, and what to do
    };
    std::variant<std::string, Refused> grant(const HandleOwner& owner, ObjectPointer object);

    /// The object of a living handle of that principal's, else null; counts as use.
    ObjectPointer find(std::string_view id, std::string_view principal);
    /// How many of `ids` were there and that principal's (anybody's without one), and are no more.
    std::size_t release(std::span<const std::string> ids, std::optional<std::string_view> principal);
    std::size_t session_ended(std::string_view session);
    /// Housekeeping: drops what was not used for too long.
    std::size_t expire();

    /// That of one principal, or anybody's; does not count as use.
    std::optional<HandleInfo> info(std::string_view id, std::optional<std::string_view> principal) const;
    /// By id.
    std::vector<HandleInfo> list(std::optional<std::string_view> principal) const;
    ObjectStats stats() const;

private:
    struct Handle {
        HandleOwner owner;
        ObjectPointer object;
        SteadyTime granted_at{};
        std::uint64_t uses = 0;
    };
    using Handles = OwnedTable<Handle>;  ///< the owner is HandleOwner::session, empty for none
    using Entry = Handles::Entry;
    struct State {
        Handles handles;
        std::unordered_map<std::string, std::size_t> by_principal;  ///< how many handles each has
        std::unordered_map<const void*, std::size_t> by_object;     ///< the same for each object
        ObjectStats stats;
    };
    std::optional<Refused> refusal(const State& state, const HandleOwner& owner) const;
    SteadyTime deadline(const HandleOwner& owner) const;
    /// Ends the handles that `choose(handles, end)` calls `end` with, and counts them in `counted`.
    template <class Choose>
    std::size_t end(std::uint64_t ObjectStats::*counted, Choose choose);
    static HandleInfo info(const State& state, const Entry& entry, SteadyTime now);

    const ObjectLimits limits_;
    const std::chrono::milliseconds idle_;
    const Clock* clock_;
    Guarded<State> state_;
};

}  // namespace shared_tensor::service
