#include "runtime/calls/idempotency.hpp"

namespace shared_tensor::runtime {

namespace {

/// The limit of keys, kept by removing keys of calls that have ended. A client repeats a call within seconds, so this
/// is enough for a thousand keyed calls a second.
constexpr std::size_t kMaxKeys = 10'000;

}  // namespace

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
