#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <shared_tensor/registry.hpp>

#include "base/bytes/latency_histogram.hpp"
#include "base/concurrency/guarded.hpp"
#include "base/concurrency/spin.hpp"
#include "runtime/functions/call_stats.hpp"
#include "runtime/tasks/worker_pool.hpp"

namespace shared_tensor::runtime {

using FunctionPointer = std::shared_ptr<const FunctionRecord>;

bool takes_streams(const FunctionRecord& function);

/// How long the runs of a function take, how many failed, and how its calls ended. Thread safety: all methods from any
/// thread.
class RunTime {
public:
    explicit RunTime(std::string name = {}) : function(std::move(name)) {}

    const std::string function;  ///< the function's name

    /// `queue`: how long the run waited before it began. If two threads call it at once, one run may be missing from
    /// the mean: the mean is only an estimate.
    void note(std::chrono::nanoseconds run, bool failed = false, std::chrono::nanoseconds queue = {}) {
        runs_.record(run);
        calls.run.record(run);
        calls.queue.record(queue);
        if (failed) failures.fetch_add(1, std::memory_order_relaxed);
        constexpr std::int64_t kWeight = 8;                       // a new run counts an eighth
        constexpr std::int64_t kMostNs = std::int64_t{10} << 20;  // a run that hung is forgotten after 30 brief runs
        const std::int64_t mean = mean_ns_.load(std::memory_order_relaxed);
        const std::int64_t now = std::clamp<std::int64_t>(run.count(), 0, kMostNs);
        mean_ns_.store(mean + (now - mean) / kWeight, std::memory_order_relaxed);
    }
    /// Whether runs are so short that waking another thread would cost more: a call runs on the thread of its request,
    /// or a waiter checks for the outcome before it sleeps. False before the first runs.
    bool brief() const { return mean_ns_.load(std::memory_order_relaxed) < kSpinUs * std::int64_t{1000}; }

    /// Counts a run that was joined of so many calls.
    void note_batch(std::size_t joined) {
        batches.fetch_add(1, std::memory_order_relaxed);
        batched_calls.fetch_add(joined, std::memory_order_relaxed);
    }

    Latencies latencies() const { return runs_.summary(); }

    CallStats calls;
    std::atomic<std::uint64_t> failures{0};
    std::atomic<std::uint64_t> batches{0}, batched_calls{0};  ///< runs that were joined, and the calls of all of them

private:
    std::atomic<std::int64_t> mean_ns_{2 * kSpinUs * std::int64_t{1000}};  ///< weighted: recent runs count more
    LatencyHistogram runs_;
};

class BatchQueue;

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
        std::uint64_t number = 0;               ///< functions that were added later have a higher number
        std::shared_ptr<BatchQueue> batches{};  ///< null: its calls are not joined
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
    struct State {
        std::map<std::string, EntryPointer, std::less<>> by_name;
        std::uint64_t version = 1;
    };

    Guarded<State> state_;
};

}  // namespace shared_tensor::runtime
