#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <shared_tensor/limits.hpp>

#include "base/concurrency/clock.hpp"
#include "base/concurrency/guarded.hpp"
#include "base/concurrency/owned_table.hpp"
#include "runtime/calls/execution.hpp"
#include "runtime/calls/run_records.hpp"

namespace shared_tensor::runtime {

struct CacheStats {
    std::size_t entries = 0;
    std::uint64_t bytes = 0, hits = 0, misses = 0;
};

/// The kept results of functions marked cached(). Their bytes are limited in total and for each function; the least
/// recently used results are removed first. Failures are never kept. Thread safety: all methods from any thread.
class ResultCache {
public:
    ResultCache(std::uint64_t max_bytes, const Clock& clock) : max_bytes_(max_bytes), clock_(&clock) {}

    /// Returns null on a miss. `again`: a second look-up for the same call, which is not counted as another miss.
    OutcomePointer find(const std::string& key, bool again = false);
    void store(std::string key, const std::string& function, std::chrono::milliseconds ttl,
               std::uint64_t function_bytes, OutcomePointer outcome);
    /// Removes the results of `function`, or all results if it is empty. Returns how many were removed.
    std::size_t clear(std::string_view function);
    /// Maintenance, several times a second: removes some of the expired results. None of them is found anyhow.
    void expire();
    CacheStats stats() const;

private:
    struct Kept {
        OutcomePointer outcome;
        SteadyTime expires;
    };
    /// The owner of a result is its function. Its deadline is the number of its last use, as a time: so the least
    /// recently used result is the first.
    using Results = OwnedTable<Kept>;
    struct State {
        Results results;
        SteadyTime last_use{};
        std::uint64_t hits = 0, misses = 0;
        std::string swept;  ///< the key that expire() looked at last; empty: it begins anew
        SteadyTime next_use() { return last_use += SteadyTime::duration(1); }
    };

    const std::uint64_t max_bytes_;
    const Clock* const clock_;
    Guarded<State> state_;
};

using shared_tensor::IdempotencyLimits;

/// The run that a key started: the execution of a plain call, or the id of a task. A repeated request gets this run and
/// never starts a second one. After a restart it may be the outcome that an earlier process wrote down. That is null if
/// the earlier process ended before the run did: the run may have happened or not.
using KeyedRun = std::variant<std::shared_ptr<Execution>, std::string, OutcomePointer>;

/// The idempotency keys of the last minutes. A key belongs to a principal and a method. It is kept while its run goes
/// on (the queue and the task table limit how many there are), and for `window` after the end of the run. If there are
/// too many keys, those whose runs ended first are removed first: of the principals that have more than half of the
/// keys or of their bytes, if there are any. Thread safety: all methods from any thread.
class IdempotencyTable {
public:
    /// `records`, if not null, outlives the table.
    IdempotencyTable(IdempotencyLimits limits, const Clock& clock, RunRecords* records = nullptr)
        : limits_(limits), clock_(&clock), records_(records) {}

    struct Known {
        KeyedRun run;
        bool same_arguments;
    };
    /// What insert() would return; nullopt for a key that it would store.
    std::optional<Known> find(const std::string& key, const std::string& arguments) const;
    /// Stores `run` under `key`, which begins with the principal and a NUL byte. If another request was first, changes
    /// nothing, and returns the run of that request and whether it had the same `arguments`. Throws std::bad_alloc.
    std::optional<Known> insert(const std::string& key, const std::string& arguments, KeyedRun run);
    /// Forgets a key whose run was rejected before it began, so that the client may try again.
    void forget(const std::string& key);
    /// Forgets a key if nobody knows whether its run has run.
    void forget_unknown(const std::string& key);

    /// Call it when the run of `key` has ended. `bytes` is the size of its result, which the key keeps alive.
    void ended(const std::string& key, std::uint64_t bytes);
    /// Stores what an earlier process wrote. `ended`: when the run ended, or the process began.
    void restore(const std::string& key, const std::string& arguments, KeyedRun run, SystemTime ended);

    void expire();
    std::size_t size() const;

private:
    struct Keyed {
        std::string arguments;
        KeyedRun run;
    };
    using Keys = OwnedTable<Keyed>;   ///< by principal; a key whose run goes on has no deadline
    using Gone = std::vector<Keyed>;  ///< destroyed without the lock: results may be large
    void take(Keys& keys, Keys::Entry& entry, Gone& gone) const;
    void drop_old(Keys& keys, SteadyTime now, Gone& gone) const;
    static std::optional<Known> known(const Keys& keys, const std::string& key, const std::string& arguments,
                                      SteadyTime now);

    IdempotencyLimits limits_;
    const Clock* clock_;
    RunRecords* records_;
    Guarded<Keys> keys_;
};

}  // namespace shared_tensor::runtime
