#pragma once

#include <chrono>
#include <cstdint>
#include <list>
#include <string>
#include <string_view>
#include <unordered_map>

#include "base/concurrency/clock.hpp"
#include "base/concurrency/guarded.hpp"
#include "runtime/calls/outcome.hpp"

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
    void store(std::string key, std::string_view function, std::chrono::milliseconds ttl, std::uint64_t function_bytes,
               OutcomePointer outcome);
    /// Removes the results of `function`, or all results if it is empty. Returns how many were removed.
    std::size_t clear(std::string_view function);
    /// Maintenance: removes expired results.
    void expire();
    CacheStats stats() const;

private:
    struct Entry {
        std::string key, function;
        OutcomePointer outcome;
        std::uint64_t bytes;
        SteadyTime expires;
    };
    using Order = std::list<Entry>;  // most recently used first
    struct State {
        Order order;
        std::unordered_map<std::string_view, Order::iterator> by_key;  // views into the entries
        std::unordered_map<std::string, std::uint64_t> function_bytes;
        CacheStats stats;
    };

    static void erase(State& state, Order::iterator entry);
    static void evict_function(State& state, const std::string& function, std::uint64_t allowed);

    std::uint64_t max_bytes_;
    const Clock* clock_;
    Guarded<State> state_;
};

}  // namespace shared_tensor::runtime
