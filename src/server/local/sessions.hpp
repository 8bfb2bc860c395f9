#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <shared_tensor/limits.hpp>

#include "base/concurrency/budget.hpp"
#include "base/concurrency/clock.hpp"
#include "base/concurrency/guarded.hpp"
#include "base/concurrency/owned_table.hpp"

namespace shared_tensor::server {

/// The sessions of clients. The token of a session ties a client's calls together. A session ends by session.close, or
/// when it is idle. A session of a local channel does not end when it is idle, but with the channel.
/// Thread safety: all methods from any thread.
class Sessions {
public:
    explicit Sessions(SessionLimits limits, const Clock& clock = real_clock()) : limits_(limits), clock_(&clock) {}

    /// `closed` is called with the token of each session that has ended. It must not block. Set it before use.
    void on_closed(std::function<void(std::string_view)> closed) { closed_ = std::move(closed); }

    /// The properties of a session.
    struct Kind {
        std::uint64_t channel = 0;  ///< of the client's local channel; 0: none
        bool keeps_state = true;    ///< its calls of stateful functions share state
    };
    /// Opens a session and returns its token ("s-" and 128 random bits). Returns nothing if the channel, or all clients
    /// without a channel together, have as many sessions as they may. Keeps `place` while the session lives.
    std::optional<std::string> open(const std::string& owner, Kind kind = {0, true}, Budget::Share place = {});
    /// Returns the properties of the session and counts as use of it. Returns nothing if the session has ended or
    /// belongs to another owner.
    std::optional<Kind> touch(std::string_view token, std::string_view owner);
    /// Whether the session exists, whatever its owner. Does not count as use.
    bool is_open(const std::string& token) const;
    bool close(std::string_view token, std::string_view owner);
    /// Ends all sessions of a channel that has ended.
    void close_channel(std::uint64_t channel);
    void expire();  ///< maintenance: ends idle sessions
    std::size_t size() const;
    const SessionLimits& limits() const { return limits_; }

private:
    struct Session {
        std::string owner;
        Kind kind;
        Budget::Share place;
    };
    using Table = OwnedTable<Session, std::uint64_t>;  ///< the owner of an entry is Kind::channel
    /// The deadline of a session that is used now.
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
