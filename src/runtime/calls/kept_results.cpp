#include "runtime/calls/kept_results.hpp"

#include <algorithm>
#include <utility>

namespace shared_tensor::runtime {

namespace {

/// The limit of keys, kept by removing keys of calls that have ended. A client repeats a call within seconds, so this
/// is enough for a thousand keyed calls a second.
constexpr std::size_t kMaxKeys = 10'000;

/// What a kept result takes beside its key and its value, about: the nodes of the table and the outcome.
constexpr std::uint64_t kEntry = 400;

/// There may be half a million results, and calls wait for the lock meanwhile.
constexpr std::size_t kSweptAtOnce = 10'000;

std::string principal_of(const std::string& key) { return key.substr(0, key.find('\0')); }

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
    const std::uint64_t bytes = kEntry + outcome->bytes().host + outcome->bytes().device + key.size();
    if (outcome->failed() || !outcome->value()->objects.empty()) return;  // objects may change
    if (bytes > max_bytes_ || bytes > function_bytes) return;
    Kept kept{std::move(outcome), later(clock_->now(), ttl)};
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
    std::vector<Kept> gone;  // destroyed without the lock
    state_.with([&](State& state) {
        const auto& entries = state.results.entries();
        auto next = entries.upper_bound(state.swept);
        for (std::size_t i = 0; i < kSweptAtOnce && next != entries.end(); ++i) {
            const std::string& key = next->first;
            state.swept = key;
            Results::Entry* const entry = (next++)->second.value.expires <= now ? state.results.find(key) : nullptr;
            if (entry != nullptr) gone.push_back(state.results.take(*entry));
        }
        if (next == entries.end()) state.swept.clear();
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
        const auto* const task = std::get_if<std::string>(&run);
        const std::string id = task != nullptr ? *task : std::string();
        Keys::Entry& entry =
            keys.add(key, principal_of(key), arguments.size(), Keys::kNever, Keyed{arguments, std::move(run)});
        try {
            if (records_ != nullptr) records_->key_started(key, arguments, id);
        } catch (...) {
            gone.push_back(keys.take(entry));
            throw;
        }
        return std::nullopt;
    });
}

void IdempotencyTable::restore(const std::string& key, const std::string& arguments, KeyedRun run, SystemTime ended) {
    const auto* const outcome = std::get_if<OutcomePointer>(&run);
    const std::uint64_t bytes = outcome != nullptr && *outcome != nullptr ? (*outcome)->bytes().host : 0;
    const auto age = std::chrono::duration_cast<SteadyTime::duration>(clock_->wall_time() - ended);
    const SteadyTime deadline = clock_->now() + limits_.window - std::max(age, SteadyTime::duration(0));
    Gone gone;
    keys_.with([&](Keys& keys) {
        keys.add(key, principal_of(key), arguments.size() + bytes, deadline, Keyed{arguments, std::move(run)});
        drop_old(keys, clock_->now(), gone);
    });
}

void IdempotencyTable::forget(const std::string& key) {
    Gone gone;
    keys_.with([&](Keys& keys) {
        if (Keys::Entry* const found = keys.find(key)) take(keys, *found, gone);
    });
}

void IdempotencyTable::forget_unknown(const std::string& key) {
    Gone gone;
    keys_.with([&](Keys& keys) {
        Keys::Entry* const found = keys.find(key);
        if (found == nullptr) return;
        const auto* const outcome = std::get_if<OutcomePointer>(&found->value.run);
        if (outcome != nullptr && *outcome == nullptr) take(keys, *found, gone);
    });
}

/// Erases the record while the table is locked: afterwards the key may begin anew.
void IdempotencyTable::take(Keys& keys, Keys::Entry& entry, Gone& gone) const {
    if (records_ != nullptr) records_->key_gone(entry.key());
    gone.push_back(keys.take(entry));
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
    while (Keys::Entry* const due = keys.first_due(now))
        take(keys, *due, gone);
    while (keys.sums().entries >= kMaxKeys || keys.sums().bytes > limits_.max_bytes) {
        const std::string* const largest = keys.owner_above({kMaxKeys / 2, limits_.max_bytes / 2});
        Keys::Entry* const oldest = largest != nullptr ? keys.first_of(*largest) : keys.first();
        if (oldest == nullptr) return;  // all of their calls go on
        take(keys, *oldest, gone);
    }
}

std::optional<IdempotencyTable::Known> IdempotencyTable::known(const Keys& keys, const std::string& key,
                                                               const std::string& arguments, SteadyTime now) {
    const Keys::Entry* const found = keys.find(key);
    if (found == nullptr || found->deadline() <= now) return std::nullopt;
    return Known{found->value.run, found->value.arguments == arguments};
}

}  // namespace shared_tensor::runtime
