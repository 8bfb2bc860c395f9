#include "runtime/calls/result_cache.hpp"

#include <iterator>

namespace shared_tensor::runtime {

OutcomePointer ResultCache::find(const std::string& key, bool again) {
    const SteadyTime now = clock_->now();
    return state_.with([&](State& state) -> OutcomePointer {
        const auto found = state.by_key.find(key);
        if (found == state.by_key.end() || found->second->expires <= now) {
            if (!again) ++state.stats.misses;
            return nullptr;
        }
        ++state.stats.hits;
        state.order.splice(state.order.begin(), state.order, found->second);
        return found->second->outcome;
    });
}

void ResultCache::store(std::string key, std::string_view function, std::chrono::milliseconds ttl,
                        std::uint64_t function_bytes, OutcomePointer outcome) {
    const std::uint64_t bytes = outcome->bytes().host + outcome->bytes().device + key.size();
    if (outcome->failed() || !outcome->value()->objects.empty()) return;  // objects may change
    if (bytes > max_bytes_ || bytes > function_bytes) return;
    const SteadyTime expires = clock_->now() + ttl;
    state_.with([&](State& state) {
        if (const auto old = state.by_key.find(key); old != state.by_key.end()) erase(state, old->second);
        state.order.push_front({std::move(key), std::string(function), std::move(outcome), bytes, expires});
        const auto entry = state.order.begin();
        state.by_key.emplace(entry->key, entry);
        state.function_bytes[entry->function] += bytes;
        state.stats.bytes += bytes;
        evict_function(state, entry->function, function_bytes);
        while (state.stats.bytes > max_bytes_)
            erase(state, std::prev(state.order.end()));
    });
}

std::size_t ResultCache::clear(std::string_view function) {
    return state_.with([&](State& state) {
        std::size_t gone = 0;
        for (auto entry = state.order.begin(); entry != state.order.end();) {
            const auto next = std::next(entry);
            if (function.empty() || entry->function == function) {
                erase(state, entry);
                ++gone;
            }
            entry = next;
        }
        return gone;
    });
}

void ResultCache::expire() {
    const SteadyTime now = clock_->now();
    state_.with([&](State& state) {
        for (auto entry = state.order.begin(); entry != state.order.end();) {
            const auto next = std::next(entry);
            if (entry->expires <= now) erase(state, entry);
            entry = next;
        }
    });
}

CacheStats ResultCache::stats() const {
    return state_.with([](const State& state) {
        CacheStats stats = state.stats;
        stats.entries = state.order.size();
        return stats;
    });
}

void ResultCache::erase(State& state, Order::iterator entry) {
    state.by_key.erase(entry->key);
    state.stats.bytes -= entry->bytes;
    const auto function = state.function_bytes.find(entry->function);
    function->second -= entry->bytes;
    if (function->second == 0) state.function_bytes.erase(function);
    state.order.erase(entry);
}

void ResultCache::evict_function(State& state, const std::string& function, std::uint64_t allowed) {
    for (auto entry = std::prev(state.order.end()); state.function_bytes[function] > allowed;) {
        const auto before = std::prev(entry);
        if (entry->function == function) erase(state, entry);
        entry = before;
    }
}

}  // namespace shared_tensor::runtime
