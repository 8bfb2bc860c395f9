#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/concurrency/clock.hpp"
#include "base/concurrency/guarded.hpp"
#include "runtime/batches/batch_arguments.hpp"
#include "runtime/calls/execution.hpp"
#include "runtime/tasks/worker_pool.hpp"

namespace shared_tensor::runtime {

/// A call that can be joined with others, and its job in the queue of the workers.
struct WaitingCall {
    std::shared_ptr<Execution> run;
    BatchArguments arguments;
    std::weak_ptr<tasks::Job> job{};
    SteadyTime since = real_clock().now();
};
using WaitingCallPointer = std::shared_ptr<WaitingCall>;

/// The waiting calls of one batched function. The worker that takes the first of them takes those that fit too.
/// Thread safety: all methods from any thread.
class BatchQueue {
public:
    BatchQueue(std::size_t rows, std::chrono::microseconds wait)
        : most_rows_(static_cast<std::int64_t>(rows)), wait_(wait) {}

    /// Adds a call. Returns true if a worker that waits for more calls has taken it: then its job is not needed.
    bool add(WaitingCallPointer call);
    /// Removes a call. Returns false if a worker has taken it.
    bool remove(const WaitingCall& call);
    /// Takes a call and others that can be joined with it, the call itself first. If there is room for more, blocks
    /// until the call has waited as long as the function allows. Returns nothing if another worker has taken the call.
    std::vector<WaitingCallPointer> take(const WaitingCall& call);

    /// True once: when joined arguments did not fit the function for the first time.
    bool is_first_misfit() { return !misfit_.exchange(true); }

private:
    /// A batch whose worker waits for more calls.
    struct Open {
        std::vector<WaitingCallPointer> calls;
        std::int64_t rows = 0;
    };
    struct SameKey {
        std::list<WaitingCallPointer> waiting;
        std::vector<Open*> open;
        bool empty() const { return waiting.empty() && open.empty(); }
    };
    using State = std::map<std::string, SameKey>;

    bool fits(const Open& batch, const WaitingCall& call) const {
        return batch.rows + call.arguments.rows <= most_rows_;
    }
    static void put(Open& batch, WaitingCallPointer call);
    static WaitingCallPointer unlink(State& state, const WaitingCall& call);
    bool open(State& state, const WaitingCall& call, Open& batch) const;
    static void close(State& state, const WaitingCall& call, Open& batch);

    const std::int64_t most_rows_;
    const std::chrono::microseconds wait_;
    std::atomic<bool> misfit_{false};
    Guarded<State> state_;
};

}  // namespace shared_tensor::runtime
