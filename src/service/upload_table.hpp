#pragma once

#include <atomic>
#include <chrono>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <variant>
#include <vector>

#include <shared_tensor/limits.hpp>

#include "util/clock.hpp"
#include "util/guarded.hpp"
#include "util/memory_block.hpp"
#include "util/owned_table.hpp"
#include "util/range_set.hpp"

namespace shared_tensor::service {

/// What all parts of one upload say alike.
struct UploadForm {
    std::string form;  ///< of the file: its suffix, dtype and shape
    std::uint64_t size = 0;
    bool operator==(const UploadForm&) const = default;
};

/// A file that comes in parts, in any order, several at once: they are put to where they belong. Each byte is taken
/// once; what comes again is passed over. Once all is there, one caller publishes or drops it.
/// Thread safety: all methods from any thread.
class Upload {
public:
    /// `account`: under whom it is counted.
    Upload(UploadForm form, std::string account, SteadyTime now)
        : form_(std::move(form)), account_(std::move(account)), last_used_(now) {}

    const UploadForm& form() const { return form_; }
    const std::string& account() const { return account_; }
    SteadyTime last_used() const { return last_used_.load(std::memory_order_relaxed); }
    bool is_published() const { return is_published_.load(std::memory_order_relaxed); }

    enum class Phase { opening, open, publishing, published, dropped };
    /// Blocks while it is opening, or being published, until `deadline`; what it is then.
    Phase settled(SteadyTime deadline) const;

    /// Its memory is there; `share` is its part of the bound of all.
    void opened(MemoryBlock block, std::shared_ptr<const void> share);

    enum class Taken { more, all, too_many_gaps };
    /// Copies what is still wanted of these bytes, of an open one. `all` for the one caller after whom nothing is
    /// missing: he publishes or drops it. Throws std::bad_alloc, and then it is of no more use.
    Taken take(std::uint64_t first, std::span<const std::byte> bytes, SteadyTime now);
    /// For who got `all`: nobody writes to it any more.
    MemoryBlock block() const;
    void published(std::uint64_t version, SteadyTime now);
    void drop();

    /// For everybody else: ends it, unless somebody is publishing it or has. False then, and where it ended before.
    bool give_up();

    struct Progress {
        Phase phase = Phase::opening;
        std::uint64_t received = 0;
        std::uint64_t version = 0;         ///< of a published one
        std::vector<NumberRange> missing;  ///< the first of them
    };
    static constexpr std::size_t kMostGaps = 50;
    Progress progress() const;

private:
    static constexpr std::size_t kMostRanges = 10'000;  // each costs memory
    struct State {
        Phase phase = Phase::opening;
        MemoryBlock block;
        std::shared_ptr<const void> share;
        RangeSet taken, there;  ///< taken: it is there, or being copied
        std::uint64_t version = 0;
    };
    bool end(Phase phase, std::uint64_t version, bool by_publisher);

    const UploadForm form_;
    const std::string account_;
    std::atomic<SteadyTime> last_used_;
    std::atomic<bool> is_published_{false};
    mutable Guarded<State> state_;
};

using shared_tensor::UploadLimits;

/// The uploads that are under way, and those that were published lately. Thread safety: all methods from any thread.
class UploadTable {
public:
    struct Key {
        std::string owner, name, id;
        auto operator<=>(const Key&) const = default;  // NOLINT(modernize-use-nullptr): of the compiler's own making
    };
    using UploadPointer = std::shared_ptr<Upload>;
    struct Full {
        std::string reason;
        bool for_ever = false;  ///< it would not do either if there were no others
    };
    explicit UploadTable(UploadLimits limits, const Clock& clock = real_clock())
        : limits_(limits), clock_(&clock), used_(std::make_shared<Guarded<Used>>()) {}

    /// Under whom an upload is counted, and whether that one may have all of max_bytes or no more than
    /// max_client_bytes().
    struct Payer {
        std::string account;
        bool may_have_all = false;
    };

    /// The one of that key, or a new one; of two callers at once one opens it and the other waits. One of another form
    /// that was published makes room. `take` gives its memory; what it throws is passed on.
    using Opened = std::variant<UploadPointer, Full>;
    Opened open(const Key& key, const UploadForm& form, const Payer& payer, const TakeBlock& take);
    /// One for a sender that has the whole file: nobody else finds it.
    Opened make(const UploadForm& form, const Payer& payer, const TakeBlock& take) const;

    UploadPointer find(const Key& key) const;
    /// Parts of it may come again, if it has an id.
    void published(const Key& key, const UploadPointer& upload, std::uint64_t version);
    /// It is there no more, and ends unless somebody is publishing it. False when it was not there, or did not end.
    bool remove(const Key& key, const UploadPointer& upload);
    void expire();  ///< housekeeping

    SteadyTime now() const { return clock_->now(); }
    struct Stats {
        std::size_t uploads = 0;
        std::uint64_t bytes = 0;
    };
    Stats stats() const;

private:
    /// The owner is the account of an upload that is under way, and kPublished (which no account is called) after that.
    using All = OwnedTable<UploadPointer, std::string, Key>;
    static constexpr std::size_t kMostPublished = 10'000;
    static constexpr std::string_view kPublished{"\0published", 10};
    bool has_room(const All& all, const std::string& account) const;
    struct Used {
        std::uint64_t bytes = 0;
        std::unordered_map<std::string, std::uint64_t> of_account;
    };
    std::optional<Full> fill(Upload& upload, const Payer& payer, const TakeBlock& take) const;

    const UploadLimits limits_;
    const Clock* const clock_;
    const std::shared_ptr<Guarded<Used>> used_;  // outlived by uploads that are still written to
    Guarded<All> all_;
};

}  // namespace shared_tensor::service
