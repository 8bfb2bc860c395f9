#include "service/idempotency.hpp"

namespace shared_tensor::service {

namespace {

/// Of calls that ended. A client repeats a call within seconds: this lasts for a thousand keyed calls a second.
constexpr std::size_t kMaxKeys = 10'000;

}  // namespace

std::optional<IdempotencyTable::Known> IdempotencyTable::find(const std::string& key,
                                                              const std::string& arguments) const {
    return state_.with([&](const State& state) { return known(state, key, arguments); });
}

std::optional<IdempotencyTable::Known> IdempotencyTable::insert(const std::string& key, const std::string& arguments,
                                                                KeyedRun run) {
    const SteadyTime now = clock_->now();
    Gone gone;
    return state_.with([&](State& state) -> std::optional<Known> {
        drop_old(state, now, gone);
        if (auto first = known(state, key, arguments)) return first;
        erase(state, key, gone);
        state.bytes += arguments.size();
        state.entries.emplace(key, Entry{arguments, std::move(run), SteadyTime::max(), arguments.size()});
        return std::nullopt;
    });
}

void IdempotencyTable::forget(const std::string& key) {
    Gone gone;
    state_.with([&](State& state) { erase(state, key, gone); });
}

void IdempotencyTable::ended(const std::string& key, std::uint64_t bytes) {
    const SteadyTime now = clock_->now();
    Gone gone;
    state_.with([&](State& state) {
        const auto entry = state.entries.find(key);
        if (entry == state.entries.end()) return;
        const std::uint64_t all = entry->second.arguments.size() + bytes;
        state.bytes += all - entry->second.bytes;
        entry->second.bytes = all;
        entry->second.expires = now + limits_.window;
        state.by_end.emplace_back(entry->second.expires, key);
        drop_old(state, now, gone);
    });
}

void IdempotencyTable::erase(State& state, const std::string& key, Gone& gone) {
    const auto entry = state.entries.find(key);
    if (entry == state.entries.end()) return;
    state.bytes -= entry->second.bytes;
    gone.push_back(std::move(entry->second.run));
    state.entries.erase(entry);
}

void IdempotencyTable::expire() {
    const SteadyTime now = clock_->now();
    Gone gone;
    state_.with([&](State& state) { drop_old(state, now, gone); });
}

std::size_t IdempotencyTable::size() const {
    return state_.with([](const State& state) { return state.entries.size(); });
}

void IdempotencyTable::drop_old(State& state, SteadyTime now, Gone& gone) const {
    const auto over = [&] { return state.entries.size() >= kMaxKeys || state.bytes > limits_.max_bytes; };
    while (!state.by_end.empty() && (state.by_end.front().first <= now || over())) {
        const auto& [expires, key] = state.by_end.front();
        const auto entry = state.entries.find(key);
        if (entry != state.entries.end() && entry->second.expires == expires) erase(state, key, gone);
        state.by_end.pop_front();
    }
}

std::optional<IdempotencyTable::Known> IdempotencyTable::known(const State& state, const std::string& key,
                                                               const std::string& arguments) const {
    const auto entry = state.entries.find(key);
    if (entry == state.entries.end() || entry->second.expires <= clock_->now()) return std::nullopt;
    return Known{entry->second.run, entry->second.arguments == arguments};
}

}  // namespace shared_tensor::service
