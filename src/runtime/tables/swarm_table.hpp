#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <shared_tensor/limits.hpp>

#include "base/concurrency/clock.hpp"
#include "base/concurrency/guarded.hpp"

namespace shared_tensor::runtime {

using shared_tensor::SwarmLimits;

/// Says who fetches which piece of a file from whom, if several receivers fetch the same version of it at the same
/// time: each piece leaves the server about once, and the receivers pass it on to each other. A piece is a part of the
/// file of a fixed size. Receivers check each piece against a digest from the server, so a relay can cost time and
/// nothing else.
///
/// A receiver that does not ask for a while is forgotten. A relay is no longer used by a receiver that it failed, and
/// by nobody once it failed two receivers. Thread safety: all methods from any thread; none blocks.
class SwarmTable {
public:
    explicit SwarmTable(SwarmLimits limits = {}, const Clock& clock = real_clock()) : limits_(limits), clock_(&clock) {}

    /// What a receiver tells when it asks what to do next.
    struct Report {
        std::string receiver{};             ///< as in Step; empty: a new receiver
        std::string address{};              ///< of a new receiver: where others fetch pieces from it
        std::vector<std::uint64_t> got{};   ///< pieces that it has now
        std::vector<std::uint64_t> lost{};  ///< pieces that it was to fetch and could not have
        bool leaves = false;
    };
    struct Step {
        std::string receiver;                ///< its id, to be given in each further report
        std::optional<std::uint64_t> piece;  ///< to be fetched now; none: it has all, or has to wait
        std::string from;                    ///< the relay's address; empty: the server
        std::size_t missing = 0;             ///< pieces that the receiver lacks
        std::size_t unfinished = 0;          ///< other receivers that lack pieces
    };
    /// `file` names one version of one file, of `pieces` pieces. Nullopt if there are too many receivers. An unknown
    /// receiver becomes a new one.
    std::optional<Step> next(const std::string& file, std::uint64_t pieces, const Report& report);
    /// Maintenance: forgets silent receivers.
    void expire();
    std::size_t receivers() const;

private:
    struct Receiver;
    struct Swarm;
    struct State {
        std::map<std::string, std::shared_ptr<Swarm>> swarms;
        std::size_t receivers = 0;
        std::minstd_rand random{std::random_device{}()};
    };
    void forget_silent(State& state, Swarm& swarm) const;

    const SwarmLimits limits_;
    const Clock* clock_;
    Guarded<State> state_;
};

}  // namespace shared_tensor::runtime
