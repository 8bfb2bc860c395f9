#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <variant>
#include <vector>

#include <shared_tensor/registry.hpp>

#include "codec/json_source.hpp"
#include "codec/lent_memory.hpp"
#include "codec/references.hpp"
#include "service/call_groups.hpp"
#include "service/execution.hpp"
#include "service/function_table.hpp"
#include "service/idempotency.hpp"
#include "service/kept_calls.hpp"
#include "service/result_cache.hpp"
#include "tasks/task_table.hpp"
#include "tasks/worker_pool.hpp"

namespace shared_tensor::service {

struct DispatcherOptions : CallLimits {
    const detail::CallMemory* memory = nullptr;  ///< where functions may have results born; outlives the dispatcher
    OwnResult own_result = nullptr;              ///< null: nothing is lent
};

/// One call as it came, all views into the request.
struct CallSpec {
    std::string_view method;
    const codec::Json& params;  ///< array, object or null
    CallOwner owner;
    std::optional<std::chrono::milliseconds> timeout;  ///< what the caller asked for
    std::string idempotency_key;                       ///< empty: none
    codec::TensorPort& port;                           ///< reads the arguments' tensors
    codec::References* references = nullptr;           ///< what the arguments may name; null: nothing
    FaultWatch memory{};                               ///< of the memory that the arguments may lie in
    std::shared_ptr<codec::LentForCall> lent{};        ///< of a call whose streams bring more; null: made if needed
    bool is_notification = false;                      ///< answered before it has run
    FunctionTable::EntryPointer function{};            ///< of that method; null: it is looked up by its name
};

struct StartedCall {
    std::unique_ptr<Execution::Waiter> waiter;
    SteadyTime deadline;
};

/// A call that streams, before it runs. It runs on the thread that calls run(), none of the workers.
class StreamRun {
public:
    StreamRun(std::shared_ptr<Execution> execution, std::unique_ptr<Execution::Waiter> waiter,
              tasks::WorkerPool::Place place, std::shared_ptr<void> counted)
        : execution_(std::move(execution)),
          waiter_(std::move(waiter)),
          place_(std::move(place)),
          counted_(std::move(counted)) {}
    StreamRun(StreamRun&&) = default;
    StreamRun& operator=(StreamRun&&) = delete;

    const std::shared_ptr<Execution>& execution() const { return execution_; }
    /// Blocks until the function has returned; the outcome may be there before.
    void run() { execution_->run(); }

private:
    std::shared_ptr<Execution> execution_;
    std::unique_ptr<Execution::Waiter> waiter_;
    tasks::WorkerPool::Place place_;  ///< in the groups of the call
    std::shared_ptr<void> counted_;   ///< one of max_streams while it is there
};

struct TaskOptions {
    std::optional<std::chrono::milliseconds> ttl;
    std::optional<std::chrono::milliseconds> deadline;  ///< none: it may run for ever
};

/// Runs shared functions: checks arguments, then idempotency key -> cache -> equal calls in flight -> queue.
///
/// Thread safety: all methods from any thread; none waits for user code but drain() and,
/// for functions marked inline_, call().
class Dispatcher {
public:
    Dispatcher(const Registry& registry, DispatcherOptions options, WrapTensor wrap, const Clock& clock = real_clock());
    ~Dispatcher();  ///< answers what waits or runs with -32009, then waits for the code that runs

    /// What can be called: more may come, and go, at any time.
    FunctionTable& functions() { return functions_; }
    const FunctionTable& functions() const { return functions_; }
    /// Null when no function has that name.
    FunctionTable::EntryPointer find(std::string_view name) const { return functions_.find(name); }

    std::variant<StartedCall, json_rpc::Error> call(const CallSpec& spec);
    /// The same for a function that streams. Its deadline is `spec.timeout`, else the function's own, else none.
    /// `cancelled` is called once when the run is not wanted any more: it must not block.
    std::variant<StreamRun, json_rpc::Error> open_stream(const CallSpec& spec,
                                                         std::shared_ptr<detail::CallStreams> streams,
                                                         std::function<void()> cancelled);
    std::size_t running_streams() const {
        return streams_->with([](std::size_t running) { return running; });
    }
    /// Nobody reads the outcome of this call (a notification): it goes on to its end, or its deadline.
    void leave_running(StartedCall started);
    /// The new task, or that of the key. Nothing when the key's task is gone already.
    std::variant<std::optional<tasks::TaskInfo>, json_rpc::Error> submit(const CallSpec& spec,
                                                                         const TaskOptions& options);

    /// How its runs went, for each function that has run.
    struct FunctionStats {
        std::string name;
        Latencies compute;
        std::uint64_t failures;
    };
    std::vector<FunctionStats> function_stats() const;

    tasks::TaskTable& tasks() { return tasks_; }
    ResultCache& cache() { return cache_; }
    const tasks::WorkerPool& pool() const { return pool_; }
    const DispatcherOptions& options() const { return options_; }

    /// New calls are refused with -32009 from now on.
    void refuse_new() { draining_.store(true); }
    /// Waits for what runs and waits; false when the deadline came first: then everything left is answered -32009.
    bool drain(SteadyTime deadline);

    /// Housekeeping, a few times a second.
    void tend();

private:
    enum class Kind { call, task, stream };
    /// A call whose arguments are read and found good, on its way to the queue.
    struct Prepared {
        FunctionTable::EntryPointer function;
        std::unique_ptr<BoundCall> call;
        std::string arguments;  ///< the text of arguments_key(), where a policy needs it
        std::string cache_key;  ///< empty: not cached
        std::chrono::milliseconds timeout;
        std::vector<codec::JsonSource::Use> objects{};
        FaultWatch memory{};  ///< see CallSpec
        std::shared_ptr<codec::LentForCall> lent{};
        bool kept = false;  ///< see Execution::Setup
    };

    using WaiterPointer = std::unique_ptr<Execution::Waiter>;

    std::variant<Prepared, json_rpc::Error> prepare(const CallSpec& spec, Kind kind) const;
    void set_keys(Prepared& prepared, const CallSpec& spec, Kind kind, const std::vector<ValueSource::Node>& arguments,
                  const codec::JsonSource& source) const;
    static std::optional<json_rpc::Error> refuse(const FunctionTable::Entry& function, Kind kind);
    std::shared_ptr<Execution> make_execution(Prepared& prepared, CallOwner owner, SteadyTime deadline,
                                              std::shared_ptr<detail::CallStreams> streams = nullptr);
    std::variant<WaiterPointer, json_rpc::Error> start(Prepared& prepared, const CallOwner& owner, SteadyTime deadline,
                                                       bool as_task);
    std::variant<WaiterPointer, json_rpc::Error> join_or_start(Prepared& prepared, const CallOwner& owner,
                                                               SteadyTime deadline, bool as_task);
    std::shared_ptr<Execution> claim(const std::string& key, const std::shared_ptr<Execution>& mine,
                                     const std::shared_ptr<Execution>& refused);
    std::variant<WaiterPointer, json_rpc::Error> start_keyed(Prepared& prepared, const CallSpec& spec,
                                                             SteadyTime deadline);
    void count_as_live(const std::shared_ptr<Execution>& execution);
    std::shared_ptr<void> count_stream();
    std::optional<json_rpc::Error> enqueue(const std::shared_ptr<Execution>& execution, const Prepared& prepared,
                                           const CallOwner& owner, bool as_task);
    json_rpc::Error busy() const;
    json_rpc::Error queue_full(bool for_task) const;
    void keep_result(Execution& execution, const Prepared& prepared);
    void follow_as_task(Execution& execution, const std::string& id);

    DispatcherOptions options_;
    WrapTensor wrap_;
    const Clock* clock_;
    FunctionTable functions_;
    std::shared_ptr<tasks::Group> task_group_;
    std::atomic<bool> draining_{false};

    CallGroups groups_;
    KeptCalls kept_calls_;
    Guarded<std::unordered_map<std::string, std::weak_ptr<Execution>>> in_flight_;  ///< cached functions, by key
    std::shared_ptr<Guarded<std::size_t>> streams_ = std::make_shared<Guarded<std::size_t>>(0);  ///< that run
    Guarded<std::unordered_map<const Execution*, std::weak_ptr<Execution>>> live_;
    ResultCache cache_;
    IdempotencyTable keys_;
    tasks::TaskTable tasks_;
    tasks::WorkerPool pool_;  ///< last: its workers use all of the above
};

}  // namespace shared_tensor::service
