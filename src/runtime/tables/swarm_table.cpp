#include "runtime/tables/swarm_table.hpp"

#include <algorithm>

#include "base/bytes/ids.hpp"

namespace shared_tensor::runtime {

namespace {

constexpr std::size_t kUploadsOfServer = 8;  // at once, of one file: more would only share its bandwidth
constexpr std::size_t kUploadsOfRelay = 4;   // at once
constexpr std::size_t kFailuresOfRelay = 2;  // receivers that it failed before nobody uses it
constexpr std::chrono::seconds kFetchTime{60};
constexpr std::chrono::seconds kPatience{1};  // of a receiver that waits for others: then it asks the server itself

}  // namespace

struct SwarmTable::Receiver {
    std::string address;
    std::vector<bool> has;
    std::size_t missing = 0;
    struct Fetch {
        std::string from;  // the id of a relay; empty: the server
        SteadyTime begun;
    };
    std::map<std::uint64_t, Fetch> fetches;  // by piece
    std::set<std::string> avoided;           // relays that failed it
    std::size_t uploads = 0;
    SteadyTime heard{};
    std::optional<SteadyTime> waits_since;
};

struct SwarmTable::Swarm {
    std::map<std::string, Receiver> receivers;              // by id
    std::vector<std::uint32_t> copies;                      // of each piece, at receivers
    std::vector<std::uint32_t> on_the_way;                  // fetches of each piece from the server
    std::map<std::string, std::set<std::string>> failures;  // of each relay: whom it failed
    std::size_t uploads = 0;                                // of the server
    std::size_t unfinished = 0;                             // receivers that lack pieces

    /// The receiver no longer fetches the piece. Returns the relay that it was to come from.
    std::string end_fetch(Receiver& receiver, std::uint64_t piece) {
        const auto found = receiver.fetches.find(piece);
        if (found == receiver.fetches.end()) return {};
        std::string from = std::move(found->second.from);
        receiver.fetches.erase(found);
        if (from.empty()) {
            --uploads;
            --on_the_way[piece];
        } else if (const auto relay = receivers.find(from); relay != receivers.end()) {
            --relay->second.uploads;
        }
        return from;
    }
    void begin_fetch(Receiver& receiver, std::uint64_t piece, const std::string& from, SteadyTime now) {
        receiver.fetches.emplace(piece, Receiver::Fetch{from, now});
        receiver.waits_since.reset();
        if (from.empty()) {
            ++uploads;
            ++on_the_way[piece];
        } else {
            ++receivers.at(from).uploads;
        }
    }
    /// Fetches whose end was never told: the answer that asked for them was lost.
    void end_old_fetches(Receiver& receiver, SteadyTime before) {
        std::vector<std::uint64_t> old;
        for (const auto& [piece, fetch] : receiver.fetches)
            if (fetch.begun < before) old.push_back(piece);
        for (const std::uint64_t piece : old)
            end_fetch(receiver, piece);
    }
    void take(Receiver& receiver, std::uint64_t piece) {
        end_fetch(receiver, piece);
        if (receiver.has[piece]) return;
        receiver.has[piece] = true;
        if (--receiver.missing == 0) --unfinished;
        ++copies[piece];
    }
    void lose(const std::string& id, Receiver& receiver, std::uint64_t piece) {
        const std::string from = end_fetch(receiver, piece);
        if (from.empty()) return;
        receiver.avoided.insert(from);
        failures[from].insert(id);
    }
    void forget(std::map<std::string, Receiver>::iterator gone) {
        Receiver& receiver = gone->second;
        while (!receiver.fetches.empty())
            end_fetch(receiver, receiver.fetches.begin()->first);
        for (std::size_t i = 0; i < copies.size(); ++i)
            copies[i] -= receiver.has[i] ? 1 : 0;
        if (receiver.missing > 0) --unfinished;
        failures.erase(gone->first);
        receivers.erase(gone);
    }
    bool wants(const Receiver& receiver, std::uint64_t piece) const {
        return !receiver.has[piece] && !receiver.fetches.contains(piece);
    }
    bool may_serve(const std::string& relay, const Receiver& to) const {
        const auto failed = failures.find(relay);
        return !to.avoided.contains(relay) && (failed == failures.end() || failed->second.size() < kFailuresOfRelay);
    }

    /// The piece with the fewest copies among those that `is_possible` allows, from a random one on.
    template <class Possible>
    std::optional<std::uint64_t> rarest(const Receiver& receiver, std::uint64_t start, Possible is_possible) const {
        std::optional<std::uint64_t> best;
        for (std::uint64_t i = 0; i < copies.size(); ++i) {
            const std::uint64_t piece = (start + i) % copies.size();
            if (!wants(receiver, piece) || !is_possible(piece)) continue;
            if (!best || copies[piece] < copies[*best]) best = piece;
            if (copies[*best] <= 1) break;
        }
        return best;
    }

    /// Whether a relay that the receiver may use has the piece.
    bool is_at_relay(const Receiver& receiver, std::uint64_t piece) const {
        if (copies[piece] == 0 || failures.empty()) return copies[piece] > 0;
        return std::any_of(receivers.begin(), receivers.end(), [&](const auto& relay) {
            return relay.second.has[piece] && may_serve(relay.first, receiver);
        });
    }
    /// A piece that nobody else has and nobody fetches: it leaves the server first, because the server's bandwidth is
    /// what all wait for.
    std::optional<std::uint64_t> fresh(const Receiver& receiver, std::uint64_t start) const {
        return rarest(receiver, start,
                      [&](std::uint64_t piece) { return on_the_way[piece] == 0 && !is_at_relay(receiver, piece); });
    }
};

std::optional<SwarmTable::Step> SwarmTable::next(const std::string& file, std::uint64_t pieces, const Report& report) {
    const SteadyTime now = clock_->now();
    return state_.with([&](State& state) -> std::optional<Step> {
        std::shared_ptr<Swarm>& slot = state.swarms[file];
        if (slot != nullptr && slot->copies.size() != pieces) return std::nullopt;  // not the file that it was
        if (slot == nullptr) {
            slot = std::make_shared<Swarm>();
            slot->copies.resize(pieces);
            slot->on_the_way.resize(pieces);
        }
        Swarm& swarm = *slot;
        auto found = swarm.receivers.find(report.receiver);
        if (found == swarm.receivers.end()) {
            if (report.leaves || state.receivers >= limits_.max_receivers) return std::nullopt;
            found = swarm.receivers.emplace(random_hex(8), Receiver{}).first;
            found->second.address = report.address;
            found->second.has.resize(pieces);
            found->second.missing = pieces;
            if (pieces > 0) ++swarm.unfinished;
            ++state.receivers;
        }
        const std::string id = found->first;
        Receiver& receiver = found->second;
        receiver.heard = now;
        for (const std::uint64_t piece : report.got)
            if (piece < pieces) swarm.take(receiver, piece);
        for (const std::uint64_t piece : report.lost)
            if (piece < pieces) swarm.lose(id, receiver, piece);
        Step step{id, {}, {}, receiver.missing, swarm.unfinished - (receiver.missing > 0 ? 1 : 0)};
        if (report.leaves) {
            swarm.forget(found);
            --state.receivers;
            if (swarm.receivers.empty()) state.swarms.erase(file);
            return step;
        }
        if (receiver.missing == 0) return step;
        swarm.end_old_fetches(receiver, now - kFetchTime);
        const std::uint64_t start = state.random() % pieces;
        const bool server_is_free = swarm.uploads < kUploadsOfServer;
        if (server_is_free) step.piece = swarm.fresh(receiver, start);
        if (!step.piece) {
            const Receiver* relay = nullptr;
            for (const auto& [other, one] : swarm.receivers) {
                if (relay != nullptr && relay->uploads == 0) break;
                const std::size_t busy = relay != nullptr ? relay->uploads : kUploadsOfRelay;
                if (other == id || one.uploads >= busy || one.missing == pieces) continue;
                if (!swarm.may_serve(other, receiver)) continue;
                const auto piece = swarm.rarest(receiver, start, [&](std::uint64_t at) { return one.has[at]; });
                if (!piece) continue;
                relay = &one;
                step.piece = piece;
                step.from = other;
            }
        }
        if (!step.piece) {
            if (!receiver.waits_since) receiver.waits_since = now;
            if (server_is_free && now - *receiver.waits_since >= kPatience)
                step.piece = swarm.rarest(receiver, start, [](std::uint64_t) { return true; });
        }
        if (!step.piece) return step;
        swarm.begin_fetch(receiver, *step.piece, step.from, now);
        if (!step.from.empty()) step.from = swarm.receivers.at(step.from).address;
        return step;
    });
}

void SwarmTable::forget_silent(State& state, Swarm& swarm) const {
    const SteadyTime now = clock_->now();
    for (auto at = swarm.receivers.begin(); at != swarm.receivers.end();) {
        const auto one = at++;
        if (now - one->second.heard < limits_.silence) continue;
        swarm.forget(one);
        --state.receivers;
    }
}

void SwarmTable::expire() {
    state_.with([&](State& state) {
        for (auto at = state.swarms.begin(); at != state.swarms.end();) {
            forget_silent(state, *at->second);
            at = at->second->receivers.empty() ? state.swarms.erase(at) : std::next(at);
        }
    });
}

std::size_t SwarmTable::receivers() const {
    return state_.with([](const State& state) { return state.receivers; });
}

}  // namespace shared_tensor::runtime
