#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "util/clock.hpp"
#include "util/guarded.hpp"

namespace shared_tensor::server {

/// Sessions over HTTP: a token that ties a client's calls together. They end by session.close or when idle.
/// Thread safety: all methods from any thread.
class Sessions {
public:
    struct Limits {
        std::size_t max_sessions = 256;
        std::chrono::milliseconds idle{600'000};
    };
    explicit Sessions(Limits limits, const Clock& clock = real_clock()) : limits_(limits), clock_(&clock) {}

    /// Called with a session's token after it ended; set before use. Must not block.
    void on_closed(std::function<void(std::string_view)> closed) { closed_ = std::move(closed); }

    /// The token of a new session (128 random bits behind "s-"), or nothing when there are too many.
    std::optional<std::string> open(const std::string& owner);
    /// Whether it is a living session of that owner; counts as use.
    bool touch(std::string_view token, std::string_view owner);
    bool close(std::string_view token, std::string_view owner);
    void expire();  ///< housekeeping
    std::size_t size() const;
    const Limits& limits() const { return limits_; }

private:
    struct Session {
        std::string owner;
        SteadyTime last_used;
    };
    Limits limits_;
    const Clock* clock_;
    std::function<void(std::string_view)> closed_;
    Guarded<std::unordered_map<std::string, Session>> sessions_;
};

}  // namespace shared_tensor::server
