#include "runtime/calls/kept_results.hpp"

#include <utility>

namespace shared_tensor::runtime {

namespace {

/// The limit of keys, kept by removing keys of calls that have ended. A client repeats a call within seconds, so this
/// is enough for a thousand keyed calls a second.
constexpr std::size_t kMaxKeys = 10'000;

}  // namespace

OutcomePointer ResultCache::find(const std::string& key, bool again) {
    const SteadyTime now = clock_->now();
    return state_.with([&](State& state) -> OutcomePointer {
        Results::Entry* const found = state.results.find(key);
        if (found == nullptr || found->value.expires <= now) {
            if (!again) ++state.misses;
            return nullptr;
        }
        ++state.hits;
        state.results.set_deadline(*found, state.next_use());
        return found->value.outcome;
    });
}

void ResultCache::store(std::string key, const std::string& function, std::chrono::milliseconds ttl,
                        std::uint64_t function_bytes, OutcomePointer outcome) {
    const std::uint64_t bytes = outcome->bytes().host + outcome->bytes().device + key.size();
    if (outcome->failed() || !outcome->value()->objects.empty()) return;  // objects may change
    if (bytes > max_bytes_ || bytes > function_bytes) return;
    Kept kept{std::move(outcome), clock_->now() + ttl};
    std::vector<Kept> gone;  // destroyed without the lock
    state_.with([&](State& state) {
        Results& results = state.results;
        if (Results::Entry* const old = results.find(key)) gone.push_back(results.take(*old));
        results.add(std::move(key), function, bytes, state.next_use(), std::move(kept));
        while (results.sums_of(function).bytes > function_bytes)
            gone.push_back(results.take(*results.first_of(function)));
        while (results.sums().bytes > max_bytes_)
            gone.push_back(results.take(*results.first()));
    });
}

std::size_t ResultCache::clear(std::string_view function) {
    return state_
        .with([&](State& state) {
            return state.results.take_if(
                [&](const auto& entry) { return function.empty() || entry.owner() == function; });
        })
        .size();
}

void ResultCache::expire() {
    const SteadyTime now = clock_->now();
    state_.with([&](State& state) {
        return state.results.take_if([&](const auto& entry) { return entry.value.expires <= now; });
    });
}

CacheStats ResultCache::stats() const {
    return state_.with([](const State& state) {
        return CacheStats{state.results.sums().entries, state.results.sums().bytes, state.hits, state.misses};
    });
}

std::optional<IdempotencyTable::Known> IdempotencyTable::find(const std::string& key,
                                                              const std::string& arguments) const {
    const SteadyTime now = clock_->now();
    return keys_.with([&](const Keys& keys) { return known(keys, key, arguments, now); });
}

std::optional<IdempotencyTable::Known> IdempotencyTable::insert(const std::string& key, const std::string& arguments,
                                                                KeyedRun run) {
    const SteadyTime now = clock_->now();
    Gone gone;
    return keys_.with([&](Keys& keys) -> std::optional<Known> {
        drop_old(keys, now, gone);
        if (auto first = known(keys, key, arguments, now)) return first;
        keys.add(key, {}, arguments.size(), Keys::kNever, Keyed{arguments, std::move(run)});
        return std::nullopt;
    });
}

void IdempotencyTable::forget(const std::string& key) {
    Gone gone;
    keys_.with([&](Keys& keys) {
        if (Keys::Entry* const found = keys.find(key)) gone.push_back(keys.take(*found));
    });
}

void IdempotencyTable::ended(const std::string& key, std::uint64_t bytes) {
    const SteadyTime now = clock_->now();
    Gone gone;
    keys_.with([&](Keys& keys) {
        Keys::Entry* const found = keys.find(key);
        if (found == nullptr) return;
        keys.set_bytes(*found, found->value.arguments.size() + bytes);
        keys.set_deadline(*found, now + limits_.window);
        drop_old(keys, now, gone);
    });
}

void IdempotencyTable::expire() {
    const SteadyTime now = clock_->now();
    Gone gone;
    keys_.with([&](Keys& keys) { drop_old(keys, now, gone); });
}

std::size_t IdempotencyTable::size() const {
    return keys_.with([](const Keys& keys) { return keys.sums().entries; });
}

void IdempotencyTable::drop_old(Keys& keys, SteadyTime now, Gone& gone) const {
    const auto over = [&] { return keys.sums().entries >= kMaxKeys || keys.sums().bytes > limits_.max_bytes; };
    while (Keys::Entry* const oldest = over() ? keys.first() : keys.first_due(now))
        gone.push_back(keys.take(*oldest));
}

std::optional<IdempotencyTable::Known> IdempotencyTable::known(const Keys& keys, const std::string& key,
                                                               const std::string& arguments, SteadyTime now) {
    const Keys::Entry* const found = keys.find(key);
    if (found == nullptr || found->deadline() <= now) return std::nullopt;
    return Known{found->value.run, found->value.arguments == arguments};
}

}  // namespace shared_tensor::runtime
