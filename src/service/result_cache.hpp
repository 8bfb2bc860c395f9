#pragma once

#include <chrono>
#include <cstdint>
#include <list>
#include <string>
#include <string_view>
#include <unordered_map>

#include "service/outcome.hpp"
#include "util/clock.hpp"
#include "util/guarded.hpp"

namespace shared_tensor::service {

struct CacheStats {
    std::size_t entries = 0;
    std::uint64_t bytes = 0, hits = 0, misses = 0, evicted = 0;
};

/// Results of functions marked cached(): bounded by bytes in all and for each function; the least recently used go
/// first. Failures are never kept. Thread safety: all methods from any thread.
class ResultCache {
public:
    ResultCache(std::uint64_t max_bytes, const Clock& clock) : max_bytes_(max_bytes), clock_(&clock) {}

    /// Null on a miss. `again`: a second look for the same call, which is not counted as a miss twice.
    OutcomePointer find(const std::string& key, bool again = false);
    void store(std::string key, std::string_view function, std::chrono::milliseconds ttl, std::uint64_t function_bytes,
               OutcomePointer outcome);
    /// Of one function, or all with an empty name. Returns how many went.
    std::size_t clear(std::string_view function);
    /// Housekeeping: drops what is over its time.
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

}  // namespace shared_tensor::service
