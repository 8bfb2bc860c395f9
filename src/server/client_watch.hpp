#pragma once

#include <functional>
#include <memory>

#include "http/server.hpp"
#include "service/execution.hpp"
#include "util/guarded.hpp"

namespace shared_tensor::server {

class LocalClient;

/// Waits on behalf of one request, and gives up when its client is gone. One thread; lives until the handler returned.
class ClientWatch {
public:
    explicit ClientWatch(http::Exchange& exchange) : exchange_(&exchange), state_(std::make_shared<Guarded<State>>()) {}

    /// Whose end counts as the client's too, though a child that it forked may hold its connection open.
    void watch_process(std::shared_ptr<LocalClient> process) { process_ = std::move(process); }

    /// Asked before the request waits or runs for long; false: answer that the server is busy.
    bool may_take_long() { return exchange_->may_take_long(); }

    /// The outcome, or null when the deadline came or the client went first.
    service::OutcomePointer wait(const std::shared_ptr<service::Execution::Waiter>& waiter, SteadyTime deadline);

    /// Begins to watch: `told` is called once, from another thread, when the client goes, or now if it went. It must
    /// not block. The last one that was given holds.
    void on_gone(std::function<void()> told);

    /// Whether the client is known to be gone; the first call begins to watch.
    bool gone();
    /// The same without beginning to watch.
    bool known_gone() const {
        return armed_ && state_->with([](const State& state) { return state.gone; });
    }

private:
    struct State {
        bool gone = false;
        std::shared_ptr<service::Execution::Waiter> waiting;
        std::function<void()> told;
    };
    void arm();

    http::Exchange* exchange_;
    std::shared_ptr<Guarded<State>> state_;  // shared with the poller's callback
    std::shared_ptr<LocalClient> process_;
    std::shared_ptr<const void> watching_process_;
    bool armed_ = false;
};

}  // namespace shared_tensor::server
