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

#include "base/concurrency/clock.hpp"
#include "base/concurrency/guarded.hpp"
#include "base/concurrency/owned_table.hpp"

namespace shared_tensor::runtime {

/// Returns why the name of a tensor or set is invalid, as a text for people; empty if it is valid. A valid name has at
/// most 255 bytes of UTF-8 without control characters and '/'. It does not begin with "l-" and does not end in .npy,
/// .safetensors or .raw.
std::string tensor_name_rejection(std::string_view name);
/// The same for the name of a member of a set. A valid name has at most 1024 bytes of UTF-8 without control characters,
/// and is not "__metadata__".
std::string member_name_rejection(std::string_view name);

/// The content of a name. The modules above define it; this module only counts its bytes. Immutable.
class NamedContent {
public:
    virtual ~NamedContent() = default;
    virtual std::uint64_t bytes() const = 0;
};

/// One version of one name. Shared by the store and its readers: a reader that holds the pointer keeps that version.
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
    std::uint64_t bytes = 0;  ///< of all versions that are kept; what two of them share counts twice
    std::uint64_t published = 0, removed = 0;
};

/// The highest version that a client may choose. The versions after it count on from there, and JavaScript has exact
/// integers up to 2^53.
inline constexpr std::uint64_t kHighestVersion = std::uint64_t{1} << 52;
/// What a put says of versions.
struct WantedVersion {
    std::optional<std::uint64_t> if_version{};  ///< only if this is the current version; 0: only for a new name
    std::optional<std::uint64_t> version{};     ///< of the new content, above the current one; none: the next
};

struct NamedFilter {
    std::optional<std::string> owner;  ///< none: names of all owners
    std::string prefix;                ///< of the names
    std::string cursor;                ///< next_cursor of the previous page; empty: from the first
    std::size_t limit = 100;
};
struct NamedPage {
    std::vector<NamedPointer> list;  ///< sorted by owner and name
    std::string next_cursor;         ///< empty if there are no more
};

/// Tensors by name. Each owner has names of its own. A name is published in one step: a reader gets either the whole
/// old version or the whole new version. Versions of a name only grow, also after a removal.
///
/// Old contents are destroyed without a lock. Thread safety: all methods from any thread; only wait() blocks.
class TensorStore {
public:
    explicit TensorStore(NamedTensorLimits limits = {}, const Clock& clock = real_clock())
        : limits_(limits), clock_(&clock) {}

    struct Rejected {
        bool conflict = false;      ///< the current version is not `if_version`
        bool is_low = false;        ///< `version` is not above the current version
        std::uint64_t version = 0;  ///< the current version; 0: the name does not exist
        std::string reason;         ///< for people: which limit, and what to do
    };
    /// Returns why a put of `bytes` bytes would be rejected now; nothing if it would succeed. Ask before the bytes are
    /// copied.
    std::optional<Rejected> rejection(std::string_view owner, std::string_view name, std::uint64_t bytes,
                                      const WantedVersion& wanted) const;
    /// Notes a change where it outlives the process. Called before readers see the change, under the lock. If it
    /// throws, nothing changes.
    using Record = std::function<void(const Named& named)>;
    /// Publishes `content`. `name` must be valid. Throws what `record` throws.
    std::variant<NamedPointer, Rejected> put(std::string_view owner, std::string_view name,
                                             std::shared_ptr<const NamedContent> content,
                                             const WantedVersion& wanted = {}, const Record& record = {});
    /// Publishes what an earlier process published. The name must be new.
    void restore(std::shared_ptr<const Named> named);
    /// New names of `owner` begin behind `version`.
    void restore_floor(const std::string& owner, std::uint64_t version);
    /// Returns null if the name does not exist.
    NamedPointer find(std::string_view owner, std::string_view name) const;
    /// Returns the older versions that are kept, the newest of them first.
    std::vector<NamedPointer> older(std::string_view owner, std::string_view name) const;
    /// Removes a name and returns its last version; null if the name did not exist. Throws what `record` throws.
    std::variant<NamedPointer, Rejected> remove(std::string_view owner, std::string_view name,
                                                std::optional<std::uint64_t> if_version = std::nullopt,
                                                const Record& record = {});
    NamedPage list(const NamedFilter& filter) const;

    /// Blocks while the name has the version `after` (0: while it does not exist). Ends at `deadline` (real steady
    /// clock), after close(), or when abandon() returns true. Calls abandon() twice a second, without a lock. Returns
    /// as find() does.
    NamedPointer wait(std::string_view owner, std::string_view name, std::uint64_t after, SteadyTime deadline,
                      const std::function<bool()>& abandon = {}) const;
    /// For shutdown: ends all calls of wait().
    void close();
    bool closed() const;

    TensorStoreStats stats() const;

private:
    struct Versions {
        NamedPointer now;
        std::vector<NamedPointer> older{};  ///< the oldest first
    };
    /// The key is the owner, '\0' and the name, so the entries are in the order of list(). The owner of an entry is the
    /// owner of the name.
    using Names = OwnedTable<Versions>;
    using Changed = Guarded<bool>;
    struct State {
        Names names;                                               ///< with the bytes of the newest versions
        std::size_t older = 0;                                     ///< older versions of all names
        std::uint64_t older_bytes = 0;                             ///< of them
        std::map<std::string, std::uint64_t, std::less<>> floors;  ///< the highest removed version of each owner
        std::map<std::string, std::shared_ptr<Changed>, std::less<>> watched;  ///< by the same keys as the names
        TensorStoreStats stats;
        bool closed = false;
    };
    std::optional<Rejected> rejection(const State& state, const Names::Entry* old, std::uint64_t bytes,
                                      const WantedVersion& wanted) const;
    void trim(State& state, Names::Entry& entry, std::vector<NamedPointer>& gone) const;
    static std::shared_ptr<Changed> changed(State& state, const std::string& key);
    static void tell(const std::shared_ptr<Changed>& changed);

    const NamedTensorLimits limits_;
    const Clock* clock_;
    mutable Guarded<State> state_;
};

}  // namespace shared_tensor::runtime
