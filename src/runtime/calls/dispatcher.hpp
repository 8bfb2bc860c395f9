#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <variant>
#include <vector>

#include <shared_tensor/registry.hpp>

#include "protocol/codec/json_source.hpp"
#include "protocol/codec/value.hpp"
#include "runtime/batches/batches.hpp"
#include "runtime/calls/call_report.hpp"
#include "runtime/calls/execution.hpp"
#include "runtime/calls/kept_results.hpp"
#include "runtime/functions/function_table.hpp"
#include "runtime/functions/passed_on_call.hpp"
#include "runtime/tasks/task_table.hpp"
#include "runtime/tasks/worker_pool.hpp"

namespace shared_tensor::runtime {

struct DispatcherOptions : CallLimits {
    const detail::CallMemory* memory = nullptr;  ///< allocates results; outlives the dispatcher; null: none
    CallReporting reporting{};                   ///< of the runs of tasks
    RunRecords* records = nullptr;               ///< outlives the dispatcher; null: nothing outlives the process
};

/// Looks after a call that runs on the thread of its request, while that thread is in the function. Used by that thread
/// only.
class CallGuard {
public:
    virtual ~CallGuard() = default;
    /// Whether another thread can answer the client while the function runs.
    virtual bool can_answer() const = 0;
    /// From now on the run is cancelled when the client is gone. At `deadline` the client is answered, whether the
    /// function goes on or not. `brief`: the function most likely returns at once, so the thread need not hand over its
    /// other work.
    virtual void begin(const std::shared_ptr<Execution>& execution, SteadyTime deadline, bool brief) = 0;
    /// The function has returned, or did not run on this thread.
    virtual void end() = 0;
};

/// One call as it was received. All views refer to the request.
struct CallSpec {
    std::string_view method;
    const codec::Json& params;  ///< array, object or null
    CallOwner owner;
    std::optional<std::chrono::milliseconds> timeout;  ///< from the request
    std::string idempotency_key;                       ///< empty: none
    codec::TensorPort& port;                           ///< reads the arguments' tensors
    codec::References* references = nullptr;           ///< resolves references in arguments; null: none allowed
    FaultWatch memory{};                               ///< watches the memory that the arguments may lie in
    std::shared_ptr<codec::LentForCall> lent{};        ///< for a call whose streams lend more; null: made if needed
    bool is_notification = false;                      ///< answered before it has run
    FunctionTable::EntryPointer function{};            ///< the function of `method`; null: it is looked up
    /// Null: the call runs on a worker. Else a call that another process runs (PassedOnCall), or whose function takes
    /// little time, runs on this thread if a worker would take it at once. With `runs_here` each call does, as one of a
    /// function that is marked inline_, unless it has to wait for others.
    CallGuard* guard = nullptr;
    bool runs_here = false;
};

struct StartedCall {
    std::unique_ptr<Execution::Waiter> waiter;
    SteadyTime deadline;
};

/// A call that streams and is ready to run. It runs on the thread that calls run(), not on a worker.
class StreamRun {
public:
    StreamRun(std::shared_ptr<Execution> execution, std::unique_ptr<Execution::Waiter> waiter,
              tasks::WorkerPool::Place place, std::shared_ptr<void> counted)
        : execution_(std::move(execution)),
          waiter_(std::move(waiter)),
          place_(std::in_place, std::move(place)),
          counted_(std::move(counted)) {}
    StreamRun(StreamRun&&) = default;
    StreamRun& operator=(StreamRun&&) = delete;

    const std::shared_ptr<Execution>& execution() const { return execution_; }
    /// Blocks until the function has returned. The outcome may be known before that, by a cancellation. If not, the
    /// places are free when it is: who has read it finds room for the next call.
    void run() {
        execution_->run([this] { place_.reset(); });
    }

private:
    std::shared_ptr<Execution> execution_;
    std::unique_ptr<Execution::Waiter> waiter_;
    std::optional<tasks::WorkerPool::Place> place_;  ///< its places in the groups of the call
    std::shared_ptr<void> counted_;                  ///< counts as one of max_streams while it lives
};

struct TaskOptions {
    std::optional<std::chrono::milliseconds> ttl;
    std::optional<std::chrono::milliseconds> deadline;  ///< none: no deadline
};

/// What an idempotency key remembers of the arguments, which may be large.
std::string digest_of(std::string_view arguments);
/// Whether a run that may have happened may be repeated.
bool is_idempotent(const FunctionTable::Entry& function);

/// Runs shared functions. Checks the arguments, then looks for the run of the idempotency key, a cached result, and an
/// equal call in flight. If there is none, puts the call into the queue.
///
/// Thread safety: all methods from any thread. Only drain(), and call() for what runs on its thread (CallSpec), wait
/// for user code.
class Dispatcher {
public:
    Dispatcher(const Registry& registry, DispatcherOptions options, const Clock& clock = real_clock());
    ~Dispatcher();  ///< ends all calls with -32009, then waits until running functions return

    /// The functions that can be called. Functions may be added and removed at any time.
    FunctionTable& functions() { return functions_; }
    const FunctionTable& functions() const { return functions_; }
    /// Returns null if no function has that name.
    FunctionTable::EntryPointer find(std::string_view name) const { return functions_.find(name); }

    std::variant<StartedCall, json_rpc::Error> call(const CallSpec& spec);
    /// Starts a call of a function that streams. Its deadline is `spec.timeout`, else the timeout of the function, else
    /// none. `cancelled` is called once if the run is cancelled; it must not block.
    std::variant<StreamRun, json_rpc::Error> open_stream(const CallSpec& spec,
                                                         std::shared_ptr<detail::CallStreams> streams,
                                                         std::function<void()> cancelled);
    std::size_t running_streams() const {
        return streams_->with([](std::size_t running) { return running; });
    }
    /// Lets a call whose outcome is not read (a notification) go on until it ends or its deadline is over.
    void detach(StartedCall started);
    /// Starts a task. Returns the new task, or the task that was submitted before with the same key. Returns nothing if
    /// that task no longer exists.
    std::variant<std::optional<tasks::TaskInfo>, json_rpc::Error> submit(const CallSpec& spec,
                                                                         const TaskOptions& options);

    /// The calls, tasks and streams that run or wait for a worker, the oldest first. Calls that run on the thread of
    /// their connection (inline_) are not among them. `owner`: only the calls of that principal.
    std::vector<Execution::View> live_calls(const std::optional<std::string>& owner) const;
    /// Ends a run, and its task, with -32004 for all equal calls that share it; returns false if `owner` has no such
    /// run.
    bool cancel(std::string_view id, const std::optional<std::string>& owner);

    tasks::TaskTable& tasks() { return tasks_; }
    ResultCache& cache() { return cache_; }
    IdempotencyTable& keys() { return keys_; }
    const tasks::WorkerPool& pool() const { return pool_; }
    const DispatcherOptions& options() const { return options_; }

    /// Rejects new calls with -32009 from now on.
    void reject_new() { draining_.store(true); }
    /// Waits until all running and waiting calls have ended. Returns false if the deadline comes first; then all other
    /// calls end with -32009.
    bool drain(SteadyTime deadline);

    /// Maintenance, a few times a second.
    void sweep();

private:
    enum class Kind { call, task, stream };
    /// A call whose arguments were read and are valid, before it is queued.
    struct Prepared {
        FunctionTable::EntryPointer function;
        Execution::Setup run;  ///< without its owner, deadline and streams
        std::chrono::milliseconds timeout;
        std::vector<codec::JsonSource::Use> objects{};
        std::string arguments{};                ///< the text of arguments_key(), if a policy needs it
        std::string cache_key{};                ///< empty: not cached
        CallGuard* guard = nullptr;             ///< null: the call runs on a worker, or its function is inline_
        bool runs_here = false;                 ///< without a worker's place
        bool brief = false;                     ///< the function's runs are
        PassedOnCall* passed_on = nullptr;      ///< the call, if it ends by itself at its deadline
        std::optional<BatchArguments> batch{};  ///< if the call can be joined with others
    };

    /// Ends a call at its deadline, unless `kept` no longer exists then.
    struct Limit {
        SteadyTime deadline;
        std::weak_ptr<void> kept;
        std::function<void()> end;
    };

    using WaiterPointer = std::unique_ptr<Execution::Waiter>;

    std::variant<Prepared, json_rpc::Error> prepare(const CallSpec& spec, Kind kind) const;
    void set_keys(Prepared& prepared, const CallSpec& spec, Kind kind, const std::vector<ValueSource::Node>& arguments,
                  const codec::JsonSource& source) const;
    static std::optional<json_rpc::Error> reject(const FunctionTable::Entry& function, Kind kind);
    std::shared_ptr<Execution> make_execution(Prepared& prepared, CallOwner owner, SteadyTime deadline,
                                              std::shared_ptr<detail::CallStreams> streams = nullptr);
    std::variant<WaiterPointer, json_rpc::Error> start(Prepared& prepared, const CallOwner& owner, SteadyTime deadline,
                                                       bool as_task);
    std::variant<WaiterPointer, json_rpc::Error> join_or_start(Prepared& prepared, const CallOwner& owner,
                                                               SteadyTime deadline, bool as_task);
    std::shared_ptr<Execution> claim(const std::string& key, const std::shared_ptr<Execution>& mine,
                                     const std::shared_ptr<Execution>& rejected);
    std::variant<WaiterPointer, json_rpc::Error> start_keyed(Prepared& prepared, const CallSpec& spec,
                                                             SteadyTime deadline);
    void count_as_live(const std::shared_ptr<Execution>& execution);
    std::vector<std::shared_ptr<Execution>> live() const;
    std::shared_ptr<void> count_stream();
    std::optional<json_rpc::Error> enqueue(const std::shared_ptr<Execution>& execution, Prepared& prepared,
                                           const CallOwner& owner, bool as_task);
    std::optional<json_rpc::Error> enqueue_batched(const std::shared_ptr<Execution>& execution, Prepared& prepared,
                                                   std::shared_ptr<tasks::Job> job);
    std::optional<json_rpc::Error> submit(const std::shared_ptr<tasks::Job>& job);
    void run_batched(const FunctionTable::Entry& function, const WaitingCall& first);
    void withdraw(const std::weak_ptr<tasks::Job>& job);
    void note_end(const std::string& key, const std::string& arguments, const CallOutcome& outcome);
    void note_cut(const std::string& key, const CallOutcome& outcome);
    static json_rpc::Error key_reused();
    json_rpc::Error busy() const;
    json_rpc::Error queue_full(bool for_task) const;
    void keep_result(Execution& execution, const Prepared& prepared);
    void begin_span(CallOwner& owner) const;
    void follow_as_task(Execution& execution, const std::string& id, std::shared_ptr<RunTime> run_time);
    int code_of_task(const std::string& id, const CallOutcome& of_run) const;
    /// Keeps one call running that no connection waits for, until abandon(): a task, a notification, a call with an
    /// idempotency key.
    using Keeper = Guarded<WaiterPointer>;
    static void abandon(Keeper& keeper);
    void keep(WaiterPointer waiter, SteadyTime deadline);
    template <class Kept, class End>
    void end_at(SteadyTime deadline, const std::shared_ptr<Kept>& kept, End end);
    void end_overdue();
    using GroupKey = std::variant<std::string, const void*>;  ///< a session, or the address of an object
    std::shared_ptr<tasks::Group> group_of(const GroupKey& key, std::size_t limit);
    tasks::Groups groups_of(const Prepared& prepared, const std::string& session);

    DispatcherOptions options_;
    const Clock* clock_;
    FunctionTable functions_;
    std::shared_ptr<tasks::Group> task_group_;
    std::atomic<bool> draining_{false};

    Guarded<std::map<GroupKey, std::weak_ptr<tasks::Group>>> groups_;
    Guarded<std::vector<Limit>> limits_;
    Guarded<std::unordered_map<std::string, std::weak_ptr<Execution>>> in_flight_;  ///< cached calls, by cache key
    std::shared_ptr<Guarded<std::size_t>> streams_ = std::make_shared<Guarded<std::size_t>>(0);  ///< how many run
    Guarded<std::unordered_map<const Execution*, std::weak_ptr<Execution>>> live_;
    ResultCache cache_;
    IdempotencyTable keys_;
    tasks::TaskTable tasks_;
    tasks::WorkerPool pool_;  ///< last: its workers use all members above
};

}  // namespace shared_tensor::runtime
