#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <shared_tensor/limits.hpp>

#include "util/budget.hpp"
#include "util/clock.hpp"
#include "util/guarded.hpp"
#include "util/owned_table.hpp"

namespace shared_tensor::server {

/// Sessions: a token that ties a client's calls together. They end by session.close, when idle, or, if they belong to a
/// local channel, with that and not before.
/// Thread safety: all methods from any thread.
class Sessions {
public:
    explicit Sessions(SessionLimits limits, const Clock& clock = real_clock()) : limits_(limits), clock_(&clock) {}

    /// Called with a session's token after it ended; set before use. Must not block.
    void on_closed(std::function<void(std::string_view)> closed) { closed_ = std::move(closed); }

    /// What a session is beside its token.
    struct Kind {
        std::uint64_t channel = 0;  ///< of the client's local channel; 0: none
        bool keeps_state = true;    ///< calls of stateful functions go on from one another
    };
    /// The token of a new session (128 random bits behind "s-"), or nothing when there are too many of that owner's
    /// channel, or without one. `place` is kept while the session lives.
    std::optional<std::string> open(const std::string& owner, Kind kind = {0, true}, Budget::Share place = {});
    /// Of a living session of that owner, else nothing; counts as use.
    std::optional<Kind> touch(std::string_view token, std::string_view owner);
    /// Anybody's; does not count as use.
    bool is_open(const std::string& token) const;
    bool close(std::string_view token, std::string_view owner);
    /// All sessions of a channel that is gone.
    void close_channel(std::uint64_t channel);
    void expire();  ///< housekeeping
    std::size_t size() const;
    const SessionLimits& limits() const { return limits_; }

private:
    struct Session {
        std::string owner;
        Kind kind;
        Budget::Share place;
    };
    using Table = OwnedTable<Session, std::uint64_t>;  ///< the owner is Kind::channel
    /// Of a session that is used now.
    SteadyTime deadline(const Kind& kind) const {
        return kind.channel == 0 ? clock_->now() + limits_.idle : Table::kNever;
    }
    /// Ends each session that `next(table)` finds, until it finds none.
    template <class Next>
    void end_all(Next next);

    SessionLimits limits_;
    const Clock* clock_;
    std::function<void(std::string_view)> closed_;
    Guarded<Table> sessions_;
};

}  // namespace shared_tensor::server
