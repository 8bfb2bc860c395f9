#pragma once

#include <atomic>
#include <chrono>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "tensor/tensor_set.hpp"
#include "util/clock.hpp"
#include "util/digest.hpp"
#include "util/guarded.hpp"
#include "util/range_set.hpp"

namespace shared_tensor::server {

/// What all parts of one upload say alike.
struct UploadForm {
    std::string form;  ///< of the file: its suffix, dtype and shape
    std::uint64_t size = 0;
    bool operator==(const UploadForm&) const = default;
};

/// A file that comes in parts, in any order, several at once: they are put to where they belong. Each byte is taken
/// once; what comes again is passed over. Thread safety: all methods from any thread.
class Upload {
public:
    Upload(UploadForm form, tensor::Block block, std::shared_ptr<const void> share, SteadyTime now);

    const UploadForm& form() const { return form_; }
    /// Copies what is still wanted of these bytes. True for the one caller after whom nothing is missing.
    bool take(std::uint64_t first, std::span<const std::byte> bytes, SteadyTime now);
    /// That of the whole, as a sender told it. False where another one was told before.
    bool expect(const Digest::Value& digest);
    std::optional<Digest::Value> expected() const;

    struct Progress {
        std::uint64_t received = 0;
        std::vector<NumberRange> missing;  ///< the first of them
    };
    static constexpr std::size_t kMostGaps = 50;
    Progress progress() const;
    SteadyTime last_used() const { return last_used_.load(std::memory_order_relaxed); }

    /// Once nothing is missing; nobody writes to it any more.
    const tensor::Block& block() const { return block_; }

private:
    struct State {
        RangeSet taken, there;  ///< taken: it is there, or being copied
        std::optional<Digest::Value> digest;
    };
    const UploadForm form_;
    const tensor::Block block_;
    const std::shared_ptr<const void> share_;  ///< of the bound of all
    mutable Guarded<State> state_;
    std::atomic<SteadyTime> last_used_;
};

struct UploadLimits {
    std::uint64_t max_bytes = std::uint64_t{8} << 30;  ///< of all that are under way
    std::size_t max_uploads = 1'000;                   ///< likewise
    std::chrono::milliseconds ttl{300'000};            ///< without a part; what was done is known as long
};

/// The uploads that are under way, and those that were done lately. Thread safety: all methods from any thread.
class Uploads {
public:
    struct Key {
        std::string owner, name, id;
        auto operator<=>(const Key&) const = default;
    };
    /// What became of one.
    struct Done {
        std::uint64_t size = 0, version = 0;
    };
    struct Full {
        std::string reason;
        bool for_ever = false;  ///< it would not do either if there were no others
    };
    explicit Uploads(UploadLimits limits, const Clock& clock = real_clock())
        : limits_(limits), clock_(&clock), used_(std::make_shared<Guarded<std::uint64_t>>(0U)) {}

    /// The one of that key, or a new one. `take` gives its memory; what it throws is passed on.
    using Opened = std::variant<std::shared_ptr<Upload>, Done, Full>;
    Opened open(const Key& key, const UploadForm& form, const tensor::TakeBlock& take);
    /// One for a sender that has the whole file: nobody else finds it.
    Opened make(const UploadForm& form, const tensor::TakeBlock& take) const;

    using Found = std::variant<std::monostate, std::shared_ptr<Upload>, Done>;
    Found find(const Key& key) const;

    /// It is there no more. False when another one took its place, or none was there.
    bool remove(const Key& key, const Upload* upload = nullptr);
    /// The same, and its parts may come again, if it has an id.
    void finish(const Key& key, const Upload& upload, std::uint64_t version);
    void expire();  ///< housekeeping

    SteadyTime now() const { return clock_->now(); }
    struct Stats {
        std::size_t uploads = 0;
        std::uint64_t bytes = 0;
    };
    Stats stats() const;
    const UploadLimits& limits() const { return limits_; }

private:
    struct Ended {
        Done done;
        SteadyTime at;
    };
    struct State {
        std::map<Key, std::shared_ptr<Upload>> open;
        std::map<Key, Ended> done;
    };
    static constexpr std::size_t kMostDone = 10'000;
    Full too_many() const;
    std::variant<std::shared_ptr<const void>, Full> share(std::uint64_t bytes) const;

    const UploadLimits limits_;
    const Clock* const clock_;
    const std::shared_ptr<Guarded<std::uint64_t>> used_;  // outlived by uploads that are still written to
    Guarded<State> state_;
};

}  // namespace shared_tensor::server
