#include "runtime/calls/dispatcher.hpp"

#include <algorithm>

#include "base/bytes/digest.hpp"
#include "base/concurrency/at_end.hpp"
#include "base/system/descriptor_store.hpp"
#include "runtime/batches/batches.hpp"

namespace shared_tensor::runtime {

using json_rpc::Error;

namespace {

std::string keyed_name(const CallSpec& spec) {
    return spec.owner.principal + '\0' + std::string(spec.method) + '\0' + spec.idempotency_key;
}

/// Whether the call has ended and returned objects. No other caller may get these objects, although the call may be
/// found in flight for a moment.
bool has_made_objects(const Execution& execution) {
    const OutcomePointer outcome = execution.outcome();
    return outcome != nullptr && !outcome->failed() && !outcome->value()->objects.empty();
}

}  // namespace

std::string digest_of(std::string_view arguments) {
    const Digest::Value digest = Digest::of(std::as_bytes(std::span(arguments)));
    return {reinterpret_cast<const char*>(digest.data()), digest.size()};
}

bool is_idempotent(const FunctionTable::Entry& function) {
    const FunctionOptions& options = function.shared->options();
    return options.idempotent || options.cached;
}

Dispatcher::Dispatcher(const Registry& registry, DispatcherOptions options, const Clock& clock)
    : options_(options),
      clock_(&clock),
      functions_(registry),
      task_group_(tasks::make_group(std::max<std::size_t>(1, options.pool.workers - 1), true)),
      cache_(options.cache_bytes, clock),
      keys_(options.idempotency, clock, options.records),
      tasks_(options.tasks, clock, options.records),
      pool_(options.pool, clock) {}

/// Ends the remaining calls while the members that are notified of their end still exist.
Dispatcher::~Dispatcher() { drain(real_clock().now()); }

std::variant<StartedCall, Error> Dispatcher::call(const CallSpec& spec) {
    auto prepared = prepare(spec, Kind::call);
    if (auto* error = std::get_if<Error>(&prepared)) return std::move(*error);
    auto& ready = std::get<Prepared>(prepared);
    const SteadyTime deadline = later(clock_->now(), ready.timeout);
    if (ready.passed_on != nullptr) ready.passed_on->end_at(deadline);
    auto waiter = spec.idempotency_key.empty() ? join_or_start(ready, spec.owner, deadline, false)
                                               : start_keyed(ready, spec, deadline);
    if (auto* error = std::get_if<Error>(&waiter)) return std::move(*error);
    return StartedCall{std::move(std::get<WaiterPointer>(waiter)), deadline};
}

Error Dispatcher::key_reused() {
    return json_rpc::invalid_params("idempotency_key", "the arguments it was first used with, or a new key",
                                    "other arguments");
}

/// The plain call of an idempotency key has ended.
void Dispatcher::note_end(const std::string& key, const std::string& arguments, const CallOutcome& outcome) {
    if (ended_with_server(outcome)) return note_cut(key, outcome);
    if (outcome.failed() && outcome.error()->is(ErrorCode::busy)) return keys_.forget(key);  // so that a repeat runs
    if (options_.records != nullptr) options_.records->key_ended(key, arguments, outcome);
    keys_.ended(key, outcome.bytes().host + outcome.bytes().device);
}

/// The server ends before the run of the key could. The record of a run that had begun stays: a later process does not
/// know its outcome.
void Dispatcher::note_cut(const std::string& key, const CallOutcome& outcome) {
    if (!outcome.error()->data.contains("may_have_run")) keys_.forget(key);
}

Error Dispatcher::busy() const { return json_rpc::busy(pool_.retry_after()); }

/// From now on drain() may cancel the run.
void Dispatcher::count_as_live(const std::shared_ptr<Execution>& execution) {
    live_.with([&](auto& live) { live.emplace(execution.get(), execution); });
    execution->observe({{}, {}, [this, key = execution.get()](const OutcomePointer&) {
                            live_.with([&](auto& live) { live.erase(key); });
                        }});
}

std::vector<std::shared_ptr<Execution>> Dispatcher::live() const {
    std::vector<std::shared_ptr<Execution>> all;
    live_.with([&](const auto& live) {
        for (const auto& [key, weak] : live) {
            if (auto execution = weak.lock()) all.push_back(std::move(execution));
        }
    });
    return all;
}

std::vector<Execution::View> Dispatcher::live_calls(const std::optional<std::string>& owner) const {
    std::vector<Execution::View> calls;
    for (const auto& execution : live()) {
        if (!owner || execution->caller().principal == *owner) calls.push_back(execution->view());
    }
    std::sort(calls.begin(), calls.end(), [](const auto& a, const auto& b) { return a.age > b.age; });
    return calls;
}

bool Dispatcher::cancel(std::string_view id, const std::optional<std::string>& owner) {
    for (const auto& execution : live()) {
        const Execution::View call = execution->view();
        if (call.id != id || (owner && call.principal != *owner)) continue;
        if (!call.task.empty()) {
            (void)tasks_.cancel(call.task, owner);
            if (execution->join() == nullptr) return true;  // no equal call waits for the run of the task
        }
        execution->own_arguments();
        execution->cancel(make_outcome(json_rpc::cancelled("the call was cancelled by server.cancel_call")));
        return true;
    }
    return false;
}

std::shared_ptr<Execution> Dispatcher::make_execution(Prepared& prepared, CallOwner owner, SteadyTime deadline,
                                                      std::shared_ptr<detail::CallStreams> streams) {
    prepared.run.owner = std::move(owner);
    prepared.run.deadline = deadline;
    prepared.run.streams = std::move(streams);
    return std::make_shared<Execution>(std::move(prepared.run));
}

std::variant<Dispatcher::WaiterPointer, Error> Dispatcher::join_or_start(Prepared& prepared, const CallOwner& owner,
                                                                         SteadyTime deadline, bool as_task) {
    if (prepared.cache_key.empty()) return start(prepared, owner, deadline, as_task);
    if (OutcomePointer known = cache_.find(prepared.cache_key)) {
        const auto execution = make_execution(prepared, owner, deadline);
        execution->finish(std::move(known));
        return execution->join();
    }
    return start(prepared, owner, deadline, as_task);
}

std::variant<Dispatcher::WaiterPointer, Error> Dispatcher::start(Prepared& prepared, const CallOwner& owner,
                                                                 SteadyTime deadline, bool as_task) {
    const auto execution = make_execution(prepared, owner, deadline);
    WaiterPointer waiter = execution->join();
    if (!prepared.cache_key.empty()) {
        keep_result(*execution, prepared);
        std::shared_ptr<Execution> running;
        while ((running = claim(prepared.cache_key, execution, running))) {
            WaiterPointer joined = running->join();
            if (joined && !has_made_objects(*running)) return joined;
        }
        // An equal call may have ended and stored its result since the first look-up.
        if (OutcomePointer known = cache_.find(prepared.cache_key, true)) {
            execution->finish(std::move(known));
            return waiter;
        }
    }
    if (auto error = enqueue(execution, prepared, owner, as_task)) {
        execution->finish(make_outcome(*error));  // for callers that joined meanwhile
        return std::move(*error);
    }
    return waiter;
}

/// Returns the equal call in flight. If there is none, returns null, and `mine` is in flight from now on. `rejected`
/// could not be joined any more and is replaced. All of this is one step: if two equal calls come at once, one runs
/// and the other joins it.
std::shared_ptr<Execution> Dispatcher::claim(const std::string& key, const std::shared_ptr<Execution>& mine,
                                             const std::shared_ptr<Execution>& rejected) {
    return in_flight_.with([&](auto& runs) -> std::shared_ptr<Execution> {
        std::weak_ptr<Execution>& slot = runs[key];
        auto running = slot.lock();
        if (running && running != rejected) return running;
        slot = mine;
        return nullptr;
    });
}

/// A call with a key goes on to its deadline even if its client is gone, because the client may come back for the
/// result. Keys are for functions with side effects, so the cache is not used.
std::variant<Dispatcher::WaiterPointer, Error> Dispatcher::start_keyed(Prepared& prepared, const CallSpec& spec,
                                                                       SteadyTime deadline) {
    const std::string key = keyed_name(spec);
    const std::string arguments = digest_of(prepared.arguments);
    if (is_idempotent(*prepared.function)) keys_.forget_unknown(key);
    const auto execution = make_execution(prepared, spec.owner, deadline);
    // Before others can find the run, join it and leave it again.
    WaiterPointer waiter = execution->join(), kept = execution->join();
    std::optional<IdempotencyTable::Known> known;
    try {
        known = keys_.insert(key, arguments, execution);
    } catch (const NotStored& error) {
        return json_rpc::out_of_memory(error.what());
    }
    if (known) {
        if (!known->same_arguments) return key_reused();
        if (auto* of_earlier_process = std::get_if<OutcomePointer>(&known->run)) {
            if (*of_earlier_process == nullptr) return json_rpc::outcome_unknown();
            execution->finish(std::move(*of_earlier_process));
            return waiter;
        }
        auto* first = std::get_if<std::shared_ptr<Execution>>(&known->run);
        if (first == nullptr) return key_reused();
        if (WaiterPointer joined = (*first)->join()) return joined;
        return json_rpc::cancelled("the call with this idempotency key was cancelled: use a new key to run it again");
    }
    std::optional<Error> error;
    try {
        execution->observe(
            {{}, {}, [this, key, arguments](const OutcomePointer& outcome) { note_end(key, arguments, *outcome); }});
        error = enqueue(execution, prepared, spec.owner, false);
    } catch (const std::bad_alloc&) {  // the call never runs, so its key must not stay
        try {
            execution->cancel();  // for callers that joined meanwhile; before forget(), which is the end of its key
        } catch (const std::bad_alloc&) {
            // They wait until their deadline.
        }
        keys_.forget(key);
        throw;
    }
    if (error) {
        execution->finish(make_outcome(*error));  // which frees the key: see note_end()
        return std::move(*error);
    }
    keep(std::move(kept), deadline);
    return waiter;
}

std::optional<Error> Dispatcher::enqueue(const std::shared_ptr<Execution>& execution, Prepared& prepared,
                                         const CallOwner& owner, bool as_task) {
    tasks::Groups groups = groups_of(prepared, owner.session);
    const bool waits = !groups.empty() || as_task;
    const auto run_here = [&](const auto& run) {
        if (prepared.guard == nullptr) return run();
        const bool ends_by_itself = prepared.runs_here || prepared.passed_on != nullptr;
        prepared.guard->begin(execution, ends_by_itself ? SteadyTime::max() : execution->deadline(), prepared.brief);
        const AtEnd ended([&] { prepared.guard->end(); });
        return run();
    };
    if (!waits && (prepared.runs_here || prepared.function->shared->options().runs == execution::inline_)) {
        run_here([&] { execution->run(); });
        return std::nullopt;
    }
    if (as_task) groups.push_back(task_group_);
    const auto job = std::make_shared<tasks::Job>();
    job->owner = owner.principal;
    job->is_task = as_task;
    job->groups = std::move(groups);
    if (prepared.batch) return enqueue_batched(execution, prepared, job);
    job->run = [execution] { execution->run(); };
    execution->on_cancelled([this, weak = std::weak_ptr(job)] { withdraw(weak); });
    count_as_live(execution);
    if (!waits && prepared.guard != nullptr && run_here([&] { return pool_.run_here(job); })) return std::nullopt;
    return submit(job);
}

std::optional<Error> Dispatcher::submit(const std::shared_ptr<tasks::Job>& job) {
    switch (pool_.submit(job)) {
        case tasks::WorkerPool::Submitted::accepted: return std::nullopt;
        case tasks::WorkerPool::Submitted::full: return queue_full(job->is_task);
        case tasks::WorkerPool::Submitted::stopping: break;
    }
    return json_rpc::shutting_down();
}

/// Takes a job whose run is not wanted out of the queue, or notes that nobody waits for it.
void Dispatcher::withdraw(const std::weak_ptr<tasks::Job>& job) {
    const auto pending = job.lock();
    if (pending && !pool_.withdraw(pending)) pool_.abandon(pending);
}

/// Each call has a job of its own, so that it has its place in the queue. The worker that gets the first job takes the
/// other calls with it.
std::optional<Error> Dispatcher::enqueue_batched(const std::shared_ptr<Execution>& execution, Prepared& prepared,
                                                 std::shared_ptr<tasks::Job> job) {
    const FunctionTable::EntryPointer function = prepared.function;
    const auto waiting = std::make_shared<WaitingCall>(WaitingCall{execution, std::move(*prepared.batch), job});
    job->run = [this, function, waiting] { run_batched(*function, *waiting); };
    execution->on_cancelled([this, function, weak = std::weak_ptr(waiting)] {
        const auto gone = weak.lock();
        if (gone && function->batches->remove(*gone)) withdraw(gone->job);
    });
    count_as_live(execution);
    if (function->batches->add(waiting)) return std::nullopt;
    auto error = submit(job);
    const bool is_taken = error && !function->batches->remove(*waiting);  // another worker took it before
    return is_taken ? std::nullopt : error;
}

void Dispatcher::run_batched(const FunctionTable::Entry& function, const WaitingCall& first) {
    std::vector<WaitingCallPointer> calls = function.batches->take(first);
    for (std::size_t i = 1; i < calls.size(); ++i) {
        if (const auto job = calls[i]->job.lock()) pool_.withdraw(job);
    }
    run_batch(function, std::move(calls), options_.memory, [this, job = first.job.lock()] { pool_.abandon(job); });
}

void Dispatcher::keep_result(Execution& execution, const Prepared& prepared) {
    const FunctionPointer& function = prepared.function->shared;
    execution.observe(
        {{}, {}, [this, key = prepared.cache_key, function, run = &execution](const OutcomePointer& outcome) {
             const FunctionOptions& options = function->options();
             cache_.store(key, std::string(function->name()), options.cache_ttl, options.cache_bytes, outcome);
             std::shared_ptr<Execution> found;  // a run must not be destroyed under the lock
             in_flight_.with([&](auto& runs) {
                 const auto mine = runs.find(key);
                 if (mine == runs.end()) return;
                 found = mine->second.lock();
                 if (found.get() == run) runs.erase(mine);
             });
         }});
}

Error Dispatcher::queue_full(bool for_task) const {
    const std::string limit = std::to_string(options_.pool.queue_limit);
    Error error = busy();
    error.data["detail"] =
        for_task ? "no task may wait now: " + std::to_string(options_.pool.kept_for_calls()) + " of the " + limit +
                       " places in the queue (--queue) are kept for plain calls; submit the task again later"
                 : "all " + limit + " places in the queue (--queue) are taken; call again later";
    return error;
}

bool Dispatcher::drain(SteadyTime deadline) {
    reject_new();
    const bool streamed = streams_->lock().wait_until(deadline, [](std::size_t running) { return running == 0; });
    const bool done = pool_.drain(deadline) && streamed;
    for (const auto& execution : live())
        execution->stop_with_server();
    tasks_.close();
    return done;
}

void Dispatcher::sweep() {
    pool_.sweep();
    tasks_.expire();
    cache_.expire();
    keys_.expire();
    end_overdue();
    groups_.with([](auto& groups) { std::erase_if(groups, [](const auto& group) { return group.second.expired(); }); });
}

void Dispatcher::detach(StartedCall started) { keep(std::move(started.waiter), started.deadline); }

}  // namespace shared_tensor::runtime
