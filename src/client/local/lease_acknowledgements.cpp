#include "client/local/lease_acknowledgements.hpp"

#include <algorithm>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "base/concurrency/background.hpp"
#include "base/log/log.hpp"

namespace shared_tensor::client {

namespace {

constexpr std::size_t kLeasesAtOnce = 1000;  // an id has 34 characters, a packet 64 KiB
/// No call waits for a confirmation. Waking a thread for each lease would take its time from the calls that bring the
/// leases. An unconfirmed lease ends after a minute, unless the server has another limit.
constexpr std::chrono::seconds kConfirmWithin{2};
/// A client cannot fill much memory in this time, so little memory waits for its release.
constexpr std::chrono::milliseconds kReleaseWithin{2};

}  // namespace

void LeaseAcknowledgements::confirm(const std::vector<std::string>& leases) { add(kConfirmed, leases, kConfirmWithin); }

void LeaseAcknowledgements::release(const std::vector<std::string>& leases) { add(kReleased, leases, kReleaseWithin); }

void LeaseAcknowledgements::retire(const std::string& lease) { add(kRetired, {lease}, kReleaseWithin); }

void LeaseAcknowledgements::add(Kind kind, const std::vector<std::string>& leases, std::chrono::milliseconds delay) {
    const bool first = state_.with([&](State& state) {
        Waiting& waiting = state.at(kind);
        waiting.leases.insert(waiting.leases.end(), leases.begin(), leases.end());
        return !std::exchange(waiting.will_be_told, true);
    });
    if (!first) return;
    try {
        later_(delay, [this, kind] { tell(kind); });
    } catch (...) {  // no memory or no thread: the next lease tries again
        state_.with([&](State& state) { state.at(kind).will_be_told = false; });
        throw;
    }
}

/// Sends all waiting leases, not only the leases that are due.
void LeaseAcknowledgements::tell(Kind due) noexcept {
    std::array<std::vector<std::string>, kKinds> waiting;
    state_.with([&](State& state) {
        state.at(due).will_be_told = false;
        for (std::size_t i = 0; i < kKinds; ++i)
            waiting.at(i).swap(state.at(i).leases);
    });
    try {
        const std::unordered_set<std::string_view> done(waiting[kReleased].begin(), waiting[kReleased].end());
        std::erase_if(waiting[kConfirmed], [&](const std::string& lease) { return done.contains(lease); });
        constexpr std::array kMethods{"lease.confirm", "lease.release", "lease.retire"};
        for (std::size_t i = 0; i < kKinds; ++i) {
            const std::span<const std::string> leases = waiting.at(i);
            for (std::size_t at = 0; at < leases.size(); at += kLeasesAtOnce)
                tell_(kMethods.at(i), leases.subspan(at, std::min(leases.size() - at, kLeasesAtOnce)));
        }
    } catch (const std::exception& error) {
        log::debug("leases or handles were not released, so they end with their channel or session: ", error.what());
    }
}

Objects::Objects(Release release)
    : releases_(
          [this](std::chrono::milliseconds, std::function<void()> work) {
              request_executor().post([self = shared_from_this(), work = std::move(work)] { work(); });
          },
          [release = std::move(release)](const char*, std::span<const std::string> ids) {
              release({ids.begin(), ids.end()});
          }) {}

ObjectPointer Objects::adopt(std::string id, std::string type) {
    auto cell = std::make_unique<ObjectCell>(ObjectCell{std::move(type), std::move(id)});
    return {cell.release(), [self = shared_from_this()](const ObjectCell* last) {
                const std::unique_ptr<const ObjectCell> owned(last);
                self->release_later(owned->id);
            }};
}

/// If there is no memory or no thread for this, the next release tries again. A handle that is never released ends with
/// its session, or after some time without use.
void Objects::release_later(const std::string& id) noexcept {
    if (!process_.is_here()) return;
    try {
        releases_.release({id});
    } catch (const std::exception& error) {
        log::warn("the handle of an object is not released now: ", error.what());
    }
}

}  // namespace shared_tensor::client
