#include "client/local/lease_acknowledgements.hpp"

#include <algorithm>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "base/log/log.hpp"

namespace shared_tensor::client {

namespace {

constexpr std::size_t kAtOnce = 1000;  // an id has 34 characters, a packet 64 KiB
/// No call waits for a confirmation. Waking a thread for each lease would take its time from the calls that bring the
/// leases. An unconfirmed lease ends after a minute, unless the server has another limit.
constexpr std::chrono::seconds kConfirmWithin{2};
/// A client cannot fill much memory in this time, so little memory waits for its release.
constexpr std::chrono::milliseconds kReleaseWithin{2};

}  // namespace

void LeaseAcknowledgements::confirm(const std::string& lease) { add(&State::confirmed, lease, kConfirmWithin); }

void LeaseAcknowledgements::release(const std::string& lease) { add(&State::released, lease, kReleaseWithin); }

void LeaseAcknowledgements::retire(const std::string& lease) { add(&State::retired, lease, kReleaseWithin); }

void LeaseAcknowledgements::add(Waiting State::*to, const std::string& lease, std::chrono::milliseconds delay) {
    const bool first = state_.with([&](State& state) {
        (state.*to).leases.push_back(lease);
        return !std::exchange((state.*to).will_be_told, true);
    });
    if (!first) return;
    try {
        later_(delay, [this, to] { tell(to); });
    } catch (...) {  // no memory or no thread: the next lease tries again
        state_.with([&](State& state) { (state.*to).will_be_told = false; });
        throw;
    }
}

/// Sends all waiting leases, not only the leases that are due.
void LeaseAcknowledgements::tell(Waiting State::*due) noexcept {
    std::vector<std::string> confirmed, released, retired;
    state_.with([&](State& state) {
        (state.*due).will_be_told = false;
        confirmed.swap(state.confirmed.leases);
        released.swap(state.released.leases);
        retired.swap(state.retired.leases);
    });
    try {
        const std::unordered_set<std::string_view> done(released.begin(), released.end());
        std::erase_if(confirmed, [&](const std::string& lease) { return done.contains(lease); });
        send("lease.confirm", confirmed);
        send("lease.release", released);
        send("lease.retire", retired);
    } catch (const std::exception& error) {
        log::debug("leases were not confirmed or released, so they end with their channel: ", error.what());
    }
}

void LeaseAcknowledgements::send(const char* method, std::span<const std::string> leases) const {
    for (; !leases.empty(); leases = leases.subspan(std::min(leases.size(), kAtOnce)))
        tell_(method, leases.first(std::min(leases.size(), kAtOnce)));
}

}  // namespace shared_tensor::client
