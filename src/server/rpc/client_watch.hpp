#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <stop_token>

#include "base/concurrency/at_end.hpp"
#include "net/server/server.hpp"
#include "runtime/calls/execution.hpp"

namespace shared_tensor::server {

/// Waits for results on behalf of one request, and stops waiting when the request's client is gone. Used by one thread
/// at a time. Lives until the request's handler has returned.
class ClientWatch {
public:
    /// Watching the connection costs two system calls. Most calls end within this time, and then need none.
    static constexpr std::chrono::milliseconds kUnwatched{20};

    explicit ClientWatch(net::ResponseStream& response_stream) : response_stream_(response_stream) {}

    /// From now on the end of the client's process counts as the client's end too: a forked child may keep the
    /// connection open. Call it before anything else begins to watch.
    void watch_process(std::stop_token end) { process_end_ = std::move(end); }

    /// Call this before the request waits or runs for long. If it returns false, answer that the server is busy.
    bool may_take_long() { return response_stream_.may_take_long(); }
    // As of net::ResponseStream.
    void about_to_wait() { response_stream_.about_to_wait(); }
    bool can_answer_now() const { return response_stream_.can_answer_now(); }
    void answer_now(const net::Response& response) { response_stream_.answer_now(response); }

    /// Blocks until the outcome is there and returns it; null if the deadline or the client's end came first.
    runtime::OutcomePointer wait(runtime::Execution::Waiter& waiter, SteadyTime deadline) {
        if (auto outcome = waiter.known()) return outcome;
        response_stream_.about_to_wait();
        if (!gone_) {
            if (auto outcome = waiter.wait_until(std::min(deadline, real_clock().now() + kUnwatched))) return outcome;
        }
        const std::stop_callback abandons(token(), [&] { waiter.abandon(); });
        return waiter.wait_until(deadline);
    }

    /// Returns a token that is stopped when the client is gone. Callbacks must not block or throw. The first call
    /// begins to watch.
    const std::stop_token& token() {
        if (gone_) return *gone_;
        gone_ = response_stream_.client_gone();
        if (process_end_.stop_possible()) gone_ = either_.emplace(*gone_, process_end_).token();
        return *gone_;
    }
    /// Whether the client is known to be gone. The first call begins to watch.
    bool gone() { return token().stop_requested(); }
    /// Like gone(), but does not begin to watch.
    bool known_gone() const { return gone_ && gone_->stop_requested(); }

private:
    net::ResponseStream& response_stream_;
    std::stop_token process_end_{};
    std::optional<std::stop_token> gone_{};
    std::optional<EitherStop> either_{};
};

}  // namespace shared_tensor::server
