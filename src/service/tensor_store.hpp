#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <shared_tensor/limits.hpp>

#include "util/clock.hpp"
#include "util/guarded.hpp"
#include "util/owned_table.hpp"

namespace shared_tensor::service {

/// What is wrong with the name of a tensor or set, in words for people; empty: nothing. At most 255 bytes of UTF-8
/// without control characters and '/'; begins with no "l-"; ends in none of .npy, .safetensors, .raw.
std::string tensor_name_fault(std::string_view name);
/// The same for a member of a set: at most 1024 bytes, anything but control characters and "__metadata__".
std::string member_name_fault(std::string_view name);

/// What stands under a name. The rooms above know what is inside; this one counts its bytes. Immutable.
class NamedContent {
public:
    virtual ~NamedContent() = default;
    virtual std::uint64_t bytes() const = 0;
};

/// One version of one name. Shared by the store and whoever reads it: who holds it keeps that version.
struct Named {
    std::string owner, name;
    std::uint64_t version = 0;
    SystemTime published_at;
    std::shared_ptr<const NamedContent> content;
};
using NamedPointer = std::shared_ptr<const Named>;

using shared_tensor::NamedTensorLimits;

struct TensorStoreStats {
    std::size_t names = 0;
    std::uint64_t bytes = 0, published = 0, removed = 0;
};

struct NamedFilter {
    std::optional<std::string> owner;  ///< none: everybody's
    std::string prefix;                ///< of the names
    std::string cursor;                ///< of the page before; empty: from the first
    std::size_t limit = 100;
};
struct NamedPage {
    std::vector<NamedPointer> list;  ///< by owner and name
    std::string next_cursor;         ///< empty: no more
};

/// Tensors by name. Each owner has names of its own. A name is published in one step: readers get the old version or
/// the new one, whole. Versions of a name only grow, even over a removal.
///
/// What goes is destroyed without a lock. Thread safety: all methods from any thread; only wait() blocks.
class TensorStore {
public:
    explicit TensorStore(NamedTensorLimits limits = {}, const Clock& clock = real_clock())
        : limits_(limits), clock_(&clock) {}

    struct Refused {
        bool conflict = false;      ///< the version is not the one that the caller named
        std::uint64_t version = 0;  ///< what it is now; 0: there is none
        std::string reason;         ///< for people: which limit, and what to do
    };
    /// Whether a put of so many bytes would do now: to be asked before they are copied.
    std::optional<Refused> refusal(std::string_view owner, std::string_view name, std::uint64_t bytes,
                                   std::optional<std::uint64_t> if_version) const;
    /// `if_version`: only in the place of that version; 0: only where there is none. `name` is a right one.
    std::variant<NamedPointer, Refused> put(std::string_view owner, std::string_view name,
                                            std::shared_ptr<const NamedContent> content,
                                            std::optional<std::uint64_t> if_version = std::nullopt);
    /// Null for one that is not there.
    NamedPointer find(std::string_view owner, std::string_view name) const;
    /// What was taken away; null when there was none.
    std::variant<NamedPointer, Refused> remove(std::string_view owner, std::string_view name,
                                               std::optional<std::uint64_t> if_version = std::nullopt);
    NamedPage list(const NamedFilter& filter) const;

    /// Blocks while the name has the version `after` (0: while there is none), until `deadline` (on the machine's
    /// steady clock), until give_up() returns true (asked twice a second, without a lock) or until close(). Then as
    /// find().
    NamedPointer wait(std::string_view owner, std::string_view name, std::uint64_t after, SteadyTime deadline,
                      const std::function<bool()>& give_up = {}) const;
    /// Shutdown: nobody waits any more.
    void close();
    bool closed() const;

    TensorStoreStats stats() const;

private:
    /// By owner, '\0' and name: so they are in the order of list(). The owner is that of the name.
    using Names = OwnedTable<NamedPointer>;
    using Changed = Guarded<bool>;
    struct State {
        Names names;
        std::map<std::string, std::uint64_t, std::less<>> floors;              ///< of an owner's removed versions
        std::map<std::string, std::shared_ptr<Changed>, std::less<>> watched;  ///< by the same keys as the names
        TensorStoreStats stats;
        bool closed = false;
    };
    std::optional<Refused> refusal(const State& state, const Names::Entry* old, std::uint64_t bytes,
                                   std::optional<std::uint64_t> if_version) const;
    static std::shared_ptr<Changed> changed(State& state, const std::string& key);
    static void tell(const std::shared_ptr<Changed>& changed);

    const NamedTensorLimits limits_;
    const Clock* clock_;
    mutable Guarded<State> state_;
};

}  // namespace shared_tensor::service
