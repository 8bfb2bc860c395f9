#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include <shared_tensor/function.hpp>

#include "base/concurrency/clock.hpp"
#include "base/concurrency/guarded.hpp"
#include "protocol/codec/json_source.hpp"
#include "protocol/codec/value.hpp"
#include "protocol/json_rpc/error.hpp"
#include "runtime/calls/execution.hpp"
#include "runtime/functions/arguments.hpp"
#include "runtime/functions/function_table.hpp"
#include "runtime/tasks/worker_pool.hpp"

// Calls of a batched function that run as one.

namespace shared_tensor::runtime {

/// The arguments of a call that can be joined with others.
struct BatchArguments {
    std::string key;                                            ///< calls with equal keys can be joined
    std::int64_t rows = 0;                                      ///< of each tensor argument
    std::vector<std::shared_ptr<const codec::Value>> values{};  ///< one per parameter; null: not given
};

/// Reads the arguments of a call of a batched function. Call it after bind(), which checks them. Returns nullopt for a
/// call that runs alone: without tensors, or with tensors on a device or inside of other arguments. Returns an error
/// -32602 if its tensors have no rows or different numbers of rows.
std::variant<std::optional<BatchArguments>, json_rpc::Error> batch_arguments(const FunctionRecord& function,
                                                                             const ArgumentNodes& nodes,
                                                                             const codec::JsonSource& source);

/// Binds `function` to the joined arguments of the calls, which have equal keys: their tensors are copied one after
/// another along dimension 0. Throws std::bad_alloc.
Binding bind_joined(const FunctionRecord& function, std::span<const BatchArguments* const> calls);

/// Throws InvalidValue unless the result of a batched function has one row for each of `rows` rows of its arguments:
/// it is null, a tensor with as many rows, a list of as many elements without tensors, or a list or object of these.
void check_rows(const codec::Value& result, std::int64_t rows);

enum class Views { allowed, copied };
/// Returns the rows `first` to `last` (not included) of a result that passed check_rows(). Its tensors are views, or
/// copies if they are in host memory and `views` says so. Throws std::bad_alloc.
codec::Value rows_of(const codec::Value& result, std::int64_t first, std::int64_t last, Views views);

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
        return call.arguments.rows <= most_rows_ - batch.rows;  // their sum may be beyond 64 bits
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

/// Runs calls that a worker took, as one run if they are several, and gives each its rows of the result. If the joined
/// run fails, each call runs alone. Calls that were cancelled take no part. `abandoned` is called when nobody waits for
/// the function that runs; it must not throw.
void run_batch(const FunctionTable::Entry& function, std::vector<WaitingCallPointer> calls,
               const detail::CallMemory* memory, const std::function<void()>& abandoned) noexcept;

}  // namespace shared_tensor::runtime
