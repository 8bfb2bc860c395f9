#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <stop_token>

#include "base/concurrency/guarded.hpp"
#include "net/server/server.hpp"
#include "runtime/calls/execution.hpp"

namespace shared_tensor::server {

class LocalClient;

/// Waits for results on behalf of one request, and stops waiting when the request's client is gone. Used by one thread.
/// Lives until the request's handler has returned.
class ClientWatch {
public:
    explicit ClientWatch(net::ResponseStream& response_stream)
        : response_stream_(&response_stream), state_(std::make_shared<Guarded<State>>()) {}

    /// From now on the end of `process` counts as the client's end too: a forked child may keep the connection open.
    /// Call it before anything else begins to watch.
    void watch_process(std::shared_ptr<LocalClient> process) { process_ = std::move(process); }

    /// Call this before the request waits or runs for long. If it returns false, answer that the server is busy.
    bool may_take_long() { return response_stream_->may_take_long(); }

    /// Blocks until the outcome is there and returns it; null if the deadline or the client's end came first.
    runtime::OutcomePointer wait(const std::shared_ptr<runtime::Execution::Waiter>& waiter, SteadyTime deadline);

    /// Begins to watch. Calls `told` once: from another thread when the client's end is detected, or at once if it was
    /// detected before. `told` must not block. A later call replaces the callback.
    void on_gone(std::function<void()> told);

    /// Whether the client is known to be gone. The first call begins to watch.
    bool gone();
    /// Like gone(), but does not begin to watch.
    bool known_gone() const {
        return armed_ && state_->with([](const State& state) { return state.gone; });
    }

private:
    struct State {
        bool gone = false;
        std::shared_ptr<runtime::Execution::Waiter> waiting;
        std::function<void()> told;
    };
    void arm();

    net::ResponseStream* response_stream_;
    std::shared_ptr<Guarded<State>> state_;  // shared with the callbacks for the client's end
    std::shared_ptr<LocalClient> process_;
    std::optional<std::stop_callback<std::function<void()>>> watching_process_;
    bool armed_ = false;
};

}  // namespace shared_tensor::server
