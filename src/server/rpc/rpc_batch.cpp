// Batches: all items run at once, except items that use results of other items.

#include <algorithm>

#include "runtime/functions/arguments.hpp"
#include "server/rpc/rpc_endpoint.hpp"

namespace shared_tensor::server {

using json_rpc::Error;
using runtime::make_outcome;

namespace {

/// Signals that a call which other items wait for has ended, or that the client is gone. Shared with the callbacks that
/// signal it.
class Progress {
public:
    void tell() {
        happened_.with([](bool& happened) { happened = true; });
        happened_.notify_all();
    }
    void wait_until(SteadyTime deadline) {
        auto access = happened_.lock();
        if (deadline == SteadyTime::max()) {
            access.wait([](bool happened) { return happened; });
        } else {
            access.wait_until(deadline, [](bool happened) { return happened; });
        }
        *access = false;
    }

private:
    Guarded<bool> happened_{false};
};

}  // namespace

/// Runs the items of a batch of which some wait for others. All work is done on the connection thread: it waits for the
/// end of calls, and starts the items that waited for them.
class RpcEndpoint::Flow {
public:
    Flow(const RpcEndpoint& endpoint, Message& message, std::vector<Item>& items, const CallMeta& defaults)
        : endpoint_(&endpoint), message_(&message), items_(&items), defaults_(&defaults) {
        for (const Item& item : items) {
            for (const std::size_t input : item.inputs)
                items[input].wanted = true;
        }
    }

    /// Returns when every item was started or has an outcome.
    void run() {
        start_ready();
        if (all_started()) return;
        const std::stop_callback gone(message_->client.token(), [this] { progress_->tell(); });
        while (!all_started()) {
            if (message_->client.known_gone()) return abandon();
            collect();
            if (start_ready() || run_builtin(false)) continue;
            if (!await_call()) run_builtin(true);
        }
    }

private:
    bool all_started() const {
        return std::all_of(items_->begin(), items_->end(), [](const Item& item) { return item.started; });
    }

    /// Starts the items whose inputs are known. Returns whether there were any.
    bool start_ready() {
        bool any = false;
        for (Item& item : *items_) {
            if (item.started || !is_ready(item)) continue;
            start(item);
            any = true;
        }
        return any;
    }

    bool is_ready(const Item& item) const {
        return std::all_of(item.inputs.begin(), item.inputs.end(),
                           [&](std::size_t input) { return (*items_)[input].outcome != nullptr; });
    }

    void start(Item& item) {
        item.started = true;
        for (const std::size_t place : item.inputs) {
            const Item& input = (*items_)[place];
            if (input.outcome->failed()) {
                item.outcome = make_outcome(json_rpc::input_failed(input.id()));
                return;
            }
            message_->references.set_item(input.id(), input.outcome);
        }
        endpoint_->start(*message_, item, *defaults_);
        if (item.wanted && item.waiter != nullptr) {
            item.waiter->execution()->observe(
                {{}, {}, [progress = progress_](const runtime::OutcomePointer&) { progress->tell(); }});
        }
    }

    /// Takes the outcomes of calls that have ended or whose deadline is over.
    void collect() {
        const SteadyTime now = real_clock().now();
        for (Item& item : *items_) {
            if (item.waiter == nullptr || item.outcome != nullptr) continue;
            if (item.waiter->execution()->outcome() != nullptr || item.deadline <= now)
                endpoint_->finish(*message_, item);
        }
    }

    /// Runs the first of the daemon's own methods whose result another item uses. `waiting_ones` selects the methods
    /// that may block or the others. Returns false if there is none.
    bool run_builtin(bool waiting_ones) {
        for (Item& item : *items_) {
            const bool next = item.wanted && item.started && item.builtin() != nullptr && item.outcome == nullptr;
            if (!next || (item.builtin()->takes == Builtins::Takes::a_wait) != waiting_ones) continue;
            endpoint_->finish(*message_, item);
            return true;
        }
        return false;
    }

    /// Waits until a call ends whose result another item uses. Returns false if there is none.
    bool await_call() {
        SteadyTime deadline = SteadyTime::max();
        bool any = false;
        for (const Item& item : *items_) {
            if (!item.wanted || item.waiter == nullptr || item.outcome != nullptr) continue;
            any = true;
            deadline = std::min(deadline, item.deadline);
        }
        if (any) progress_->wait_until(deadline);
        return any;
    }

    void abandon() {
        for (Item& item : *items_) {
            if (item.started) continue;
            item.started = true;
            item.outcome = make_outcome(
                json_rpc::cancelled("the client left before the items ended whose results this item uses"));
        }
    }

    const RpcEndpoint* endpoint_;
    Message* message_;
    std::vector<Item>* items_;
    const CallMeta* defaults_;
    const std::shared_ptr<Progress> progress_ = std::make_shared<Progress>();
};

void RpcEndpoint::start_all(Message& message, std::vector<Item>& items, const CallMeta& defaults) const {
    std::vector<const json_rpc::Request*> requests;
    requests.reserve(items.size());
    for (const Item& item : items)
        requests.push_back(item.outcome == nullptr ? &item.request : nullptr);
    std::vector<runtime::BatchInputs> inputs = runtime::find_inputs(requests);
    for (std::size_t i = 0; i < items.size(); ++i) {
        if (inputs[i].error) items[i].outcome = make_outcome(std::move(*inputs[i].error));
        items[i].started = items[i].outcome != nullptr;
        if (!items[i].started) items[i].inputs = std::move(inputs[i].items);
    }
    Flow(*this, message, items, defaults).run();
}

}  // namespace shared_tensor::server
