#include "service/dispatcher.hpp"

#include <algorithm>
#include <new>

#include "service/arguments.hpp"
#include "service/prepared_call.hpp"
#include "util/memory_reserve.hpp"

namespace shared_tensor::service {

using json_rpc::Error;

namespace {

constexpr std::size_t kMaxKeyBytes = 255;  // docs/protocol.md: what clients may rely on

std::string keyed_name(const CallSpec& spec) {
    return spec.owner.principal + '\0' + std::string(spec.method) + '\0' + spec.idempotency_key;
}

Error key_reused() {
    return json_rpc::invalid_params("idempotency_key", "the arguments it was first used with, or a new key",
                                    "other arguments");
}

/// A call that has ended and yielded objects: nobody else gets these, though it may be found in flight for a moment.
bool has_made_objects(const Execution& execution) {
    const OutcomePointer outcome = execution.outcome();
    return outcome != nullptr && !outcome->failed() && !outcome->value()->objects.empty();
}

}  // namespace

Dispatcher::Dispatcher(const Registry& registry, DispatcherOptions options, WrapTensor wrap, const Clock& clock)
    : options_(options),
      wrap_(wrap),
      clock_(&clock),
      functions_(registry),
      task_group_(tasks::make_group(std::max<std::size_t>(1, options.pool.workers - 1))),
      cache_(options.cache_bytes, clock),
      keys_(options.idempotency, clock),
      tasks_(options.tasks, clock),
      pool_(options.pool, clock) {}

/// What is left ends while everything that is told of it still stands.
Dispatcher::~Dispatcher() { drain(real_clock().now()); }

std::variant<StartedCall, Error> Dispatcher::call(const CallSpec& spec) {
    auto prepared = prepare(spec, Kind::call);
    if (auto* error = std::get_if<Error>(&prepared)) return std::move(*error);
    auto& ready = std::get<Prepared>(prepared);
    const SteadyTime deadline = clock_->now() + ready.timeout;
    auto waiter = spec.idempotency_key.empty() ? join_or_start(ready, spec.owner, deadline, false)
                                               : start_keyed(ready, spec, deadline);
    if (auto* error = std::get_if<Error>(&waiter)) return std::move(*error);
    return StartedCall{std::move(std::get<WaiterPointer>(waiter)), deadline};
}

bool Dispatcher::streams(std::string_view name) const {
    const auto found = functions_.find(name);
    return found != nullptr && found->streams;
}

std::optional<Error> Dispatcher::refuse(const FunctionTable::Entry& function, Kind kind) {
    if (function.streams && kind != Kind::stream) {
        return json_rpc::invalid_request(
            "this function streams: call it over a WebSocket (GET /ws), or, where it only writes, with Accept: "
            "text/event-stream");
    }
    if (function.shared->options().runs == execution::task && kind == Kind::call)
        return json_rpc::invalid_request("this function runs as a task only: call task.submit with {method, params}");
    return std::nullopt;
}

std::variant<Dispatcher::Prepared, Error> Dispatcher::prepare(const CallSpec& spec, Kind kind) const {
    if (draining_.load()) return json_rpc::shutting_down();
    if (!has_memory_reserve()) {
        return json_rpc::out_of_memory(
            "the server has no memory left for calls: let go of results and tensors that it keeps, or call again "
            "later");
    }
    const auto found = functions_.find(spec.method);
    if (found == nullptr) return json_rpc::method_not_found(spec.method);
    const FunctionTable::Entry& function = *found;
    const FunctionOptions& options = function.shared->options();
    if (auto error = refuse(function, kind)) return std::move(*error);
    if (spec.idempotency_key.size() > kMaxKeyBytes) {
        return json_rpc::invalid_params("idempotency_key", "at most " + std::to_string(kMaxKeyBytes) + " bytes",
                                        std::to_string(spec.idempotency_key.size()));
    }
    auto nodes = match_arguments(*function.shared, spec.params);
    if (auto* error = std::get_if<Error>(&nodes)) return std::move(*error);
    codec::JsonSource source(spec.port, spec.references,
                             Placement{function.shared->options().device, function.shared->options().dtype});
    (void)spec.port.take_lent();  // what others of the same message brought is theirs
    Binding binding = function.shared->bind(source, std::get<ArgumentNodes>(nodes));
    if (binding.failure) return source.fault() ? *source.fault() : to_error(*binding.failure);

    Prepared prepared{found,    std::move(binding.call), {}, {}, options_.call_timeout, source.uses(), spec.memory,
                      spec.lent};
    if (auto lent = spec.port.take_lent(); !lent.empty()) {
        if (prepared.lent == nullptr) prepared.lent = std::make_shared<codec::LentForCall>();
        prepared.lent->add(std::move(lent));
    }
    try {
        set_keys(prepared, spec, kind, std::get<ArgumentNodes>(nodes), source);
    } catch (const InvalidValue& error) {  // a reference that the function's own codec passed over
        return source.fault() ? *source.fault() : json_rpc::invalid_params(error.path, error.expected, error.got);
    } catch (const std::bad_alloc&) {
        return json_rpc::out_of_memory(
            "there is no memory for copies of the arguments, which the call needs because it may outlive this request: "
            "wait until others have ended, or start the server with a higher --max-bytes-in-flight");
    }
    if (options.timeout.count() > 0) prepared.timeout = options.timeout;
    if (spec.timeout) prepared.timeout = *spec.timeout;
    return prepared;
}

namespace {

/// Of a call that may outlive its request. Its caller is free to write to its memory as soon as that is answered.
void own_arguments(const codec::LentForCall* lent, codec::TensorPort& port) {
    if (lent == nullptr) return;
    for (const auto& memory : lent->in_use())
        port.take_over(*memory);
}

}  // namespace

/// What the policies know the call by, and whether its result is kept. Then the arguments are the server's own, and the
/// key is that of the bytes which the function will read.
void Dispatcher::set_keys(Prepared& prepared, const CallSpec& spec, Kind kind, const ArgumentNodes& arguments,
                          const codec::JsonSource& source) const {
    const FunctionOptions& options = prepared.function->shared->options();
    const bool streams = prepared.function->streams;
    const bool cacheable = options_.cache && options.cached && !options.stateful && !streams;
    const bool keyed = !spec.idempotency_key.empty() && !streams;
    prepared.kept = keyed || kind == Kind::task;
    const bool outlives_request = prepared.kept || spec.is_notification;
    if (outlives_request) own_arguments(prepared.lent.get(), spec.port);
    if (!cacheable && !keyed) return;
    ArgumentsKey key = arguments_key(arguments, source, keyed ? Digests::compute : Digests::stop);
    const bool cached = cacheable && !key.has_digests && !key.has_objects && prepared.objects.empty();
    if (cached && !outlives_request && prepared.lent != nullptr) {
        own_arguments(prepared.lent.get(), spec.port);
        key = arguments_key(arguments, source, Digests::stop);
    }
    prepared.kept |= cached;
    prepared.arguments = std::move(key.text);
    if (cached) {
        prepared.cache_key = std::string(spec.method) + '\0' + std::string(options.version) + '\0' +
                             spec.owner.principal + '\0' + prepared.arguments;
    }
}

std::shared_ptr<Execution> Dispatcher::make_execution(Prepared& prepared, CallOwner owner, SteadyTime deadline) {
    return std::make_shared<Execution>(Execution::Setup{prepared.function->shared, std::move(prepared.call),
                                                        std::move(owner), deadline, wrap_, prepared.function->run_time,
                                                        options_.memory, nullptr, prepared.memory, options_.own_result,
                                                        prepared.lent, prepared.kept});
}

std::vector<Dispatcher::FunctionStats> Dispatcher::function_stats() const {
    std::vector<FunctionStats> all;
    for (const auto& function : functions_.all()) {
        const Latencies compute = function->run_time->latencies();
        if (compute.count > 0)
            all.push_back({std::string(function->shared->name()), compute, function->run_time->failures()});
    }
    return all;
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
        // The equal call that was in flight a moment ago may have left its result since we looked.
        if (OutcomePointer known = cache_.find(prepared.cache_key, true)) {
            execution->finish(std::move(known));
            return waiter;
        }
    }
    if (auto error = enqueue(execution, prepared, owner, as_task)) {
        execution->finish(make_outcome(*error));  // for those who joined meanwhile
        return std::move(*error);
    }
    return waiter;
}

/// The equal call in flight, to be joined; null when there is none but `mine` from now on. `refused` could not be
/// joined any more: it is put aside. One step, so that of two equal calls at once one runs and one joins.
std::shared_ptr<Execution> Dispatcher::claim(const std::string& key, const std::shared_ptr<Execution>& mine,
                                             const std::shared_ptr<Execution>& refused) {
    return in_flight_.with([&](auto& runs) -> std::shared_ptr<Execution> {
        std::weak_ptr<Execution>& slot = runs[key];
        auto running = slot.lock();
        if (running && running != refused) return running;
        slot = mine;
        return nullptr;
    });
}

/// A call with a key goes on to its deadline even if its client goes away: the key says that it will come back for the
/// result. Keys are for functions with side effects, so the cache is not asked.
std::variant<Dispatcher::WaiterPointer, Error> Dispatcher::start_keyed(Prepared& prepared, const CallSpec& spec,
                                                                       SteadyTime deadline) {
    const std::string key = keyed_name(spec);
    const std::string arguments = prepared.arguments;
    auto known = keys_.find(key, arguments);
    std::shared_ptr<Execution> execution;
    if (!known) {
        execution = make_execution(prepared, spec.owner, deadline);
        known = keys_.insert(key, arguments, execution);
    }
    if (known) {
        auto* first = std::get_if<std::shared_ptr<Execution>>(&known->run);
        if (!known->same_arguments || first == nullptr) return key_reused();
        if (WaiterPointer waiter = (*first)->join()) return waiter;
        return json_rpc::cancelled("the call with this idempotency key was cancelled: use a new key to run it again");
    }
    execution->observe({{}, {}, [this, key](const OutcomePointer& outcome) {
                            keys_.ended(key, outcome->host_bytes() + outcome->device_bytes());
                        }});
    WaiterPointer waiter = execution->join();
    WaiterPointer kept = execution->join();
    if (auto error = enqueue(execution, prepared, spec.owner, false)) {
        keys_.forget(key);
        execution->finish(make_outcome(*error));
        return std::move(*error);
    }
    keep_until(std::move(kept), deadline);
    return waiter;
}

std::optional<Error> Dispatcher::enqueue(const std::shared_ptr<Execution>& execution, const Prepared& prepared,
                                         const CallOwner& owner, bool as_task) {
    const FunctionOptions& options = prepared.function->shared->options();
    tasks::Groups groups = groups_of(prepared, owner);
    if (options.runs == execution::inline_ && groups.empty() && !as_task) {
        execution->run();
        return std::nullopt;
    }
    if (as_task) groups.push_back(task_group_);
    const auto job = std::make_shared<tasks::Job>();
    job->is_task = as_task;
    job->groups = std::move(groups);
    job->run = [execution] { execution->run(); };
    execution->on_cancelled([this, weak = std::weak_ptr(job)] {
        const auto pending = weak.lock();
        if (pending && !pool_.withdraw(pending)) pool_.abandon(pending);
    });
    count_as_live(execution);
    switch (pool_.submit(job)) {
        case tasks::WorkerPool::Submitted::accepted: return std::nullopt;
        case tasks::WorkerPool::Submitted::full: return queue_full(as_task);
        case tasks::WorkerPool::Submitted::stopping: break;
    }
    return json_rpc::shutting_down();
}

/// From here drain() may cancel it.
void Dispatcher::count_as_live(const std::shared_ptr<Execution>& execution) {
    live_.with([&](auto& live) { live.emplace(execution.get(), execution); });
    execution->observe({{}, {}, [this, key = execution.get()](const OutcomePointer&) {
                            live_.with([&](auto& live) { live.erase(key); });
                        }});
}

/// Whose room a call needs: its function's, its session's, and that of the objects that it uses.
tasks::Groups Dispatcher::groups_of(const Prepared& prepared, const CallOwner& owner) {
    tasks::Groups groups;
    if (prepared.function->group) groups.emplace_back(prepared.function->group);
    bool alone = false;
    for (const auto& [object, access] : prepared.objects) {
        const bool exclusive = access == Access::exclusive;
        groups.emplace_back(object_group(object), exclusive ? tasks::Claim::kAll : 1);
        alone |= exclusive;
    }
    // An instance that is passed stands in the place of the session's.
    const bool stateful = prepared.function->shared->options().stateful && !alone;
    if (stateful && !owner.session.empty()) groups.emplace_back(session_group(owner.session));
    return groups;
}

Error Dispatcher::busy() const { return json_rpc::busy(pool_.retry_after()); }

Error Dispatcher::queue_full(bool for_task) const {
    const std::string limit = std::to_string(options_.pool.queue_limit);
    Error error = busy();
    error.data["detail"] =
        for_task ? "no task may wait now: " + std::to_string(options_.pool.kept_for_calls()) + " of the " + limit +
                       " places in the queue (--queue) are kept for plain calls; submit the task again later"
                 : "all " + limit + " places in the queue (--queue) are taken; call again later";
    return error;
}

std::shared_ptr<tasks::Group> Dispatcher::session_group(const std::string& session) {
    return session_groups_.with([&](auto& groups) {
        std::shared_ptr<tasks::Group> group = groups[session].lock();
        if (!group) groups[session] = group = tasks::make_group(1);
        return group;
    });
}

/// There while calls that use the object wait or run; they keep the object too, so its address is its own.
std::shared_ptr<tasks::Group> Dispatcher::object_group(const ObjectPointer& object) {
    constexpr std::size_t kAnyNumber = 1'000'000;  // of calls at once: more than any queue has
    return object_groups_.with([&](auto& groups) {
        auto& slot = groups[object->value.get()];
        std::shared_ptr<tasks::Group> group = slot.lock();
        if (!group) slot = group = tasks::make_group(kAnyNumber);
        return group;
    });
}

void Dispatcher::keep_result(Execution& execution, const Prepared& prepared) {
    const FunctionPointer& function = prepared.function->shared;
    execution.observe(
        {{}, {}, [this, key = prepared.cache_key, function, run = &execution](const OutcomePointer& outcome) {
             const FunctionOptions& options = function->options();
             cache_.store(key, function->name(), options.cache_ttl, options.cache_bytes, outcome);
             std::shared_ptr<Execution> found;  // whatever it is, it does not end under the lock
             in_flight_.with([&](auto& runs) {
                 const auto mine = runs.find(key);
                 if (mine == runs.end()) return;
                 found = mine->second.lock();
                 if (found.get() == run) runs.erase(mine);
             });
         }});
}

bool Dispatcher::drain(SteadyTime deadline) {
    refuse_new();
    const bool streamed = streams_->lock().wait_until(deadline, [](std::size_t running) { return running == 0; });
    const bool done = pool_.drain(deadline) && streamed;
    std::vector<std::shared_ptr<Execution>> left;
    live_.with([&](auto& live) {
        for (const auto& [key, weak] : live) {
            if (auto execution = weak.lock()) left.push_back(std::move(execution));
        }
    });
    for (const auto& execution : left)
        execution->cancel(make_outcome(json_rpc::shutting_down()));
    tasks_.close();
    return done;
}

void Dispatcher::tend() {
    pool_.tend();
    tasks_.expire();
    cache_.expire();
    keys_.expire();
    end_overdue();
    const auto drop_unused = [](auto& groups) {
        std::erase_if(groups, [](const auto& entry) { return entry.second.expired(); });
    };
    session_groups_.with(drop_unused);
    object_groups_.with(drop_unused);
}

void Dispatcher::give_up(Wish& wish) {
    WaiterPointer waiter;
    wish.with([&](WaiterPointer& held) { waiter.swap(held); });
}  // the waiter goes here, outside the lock: it may cancel the run

void Dispatcher::leave_running(StartedCall started) { keep_until(std::move(started.waiter), started.deadline); }

/// Holds the wish for an outcome until it is there or the deadline is past.
void Dispatcher::keep_until(WaiterPointer waiter, SteadyTime deadline) {
    const std::shared_ptr<Execution> execution = waiter->execution();
    if (execution->outcome()) return;
    const auto wish = std::make_shared<Wish>(std::move(waiter));
    limits_.with([&](auto& limits) { limits.push_back({deadline, wish, {}}); });
    execution->observe({{}, {}, [wish](const OutcomePointer&) { give_up(*wish); }});
}

/// Whoever else waits for the same run keeps it going: only the wish that is over its time ends.
void Dispatcher::end_overdue() {
    const SteadyTime now = clock_->now();
    std::vector<std::pair<std::shared_ptr<Wish>, std::string>> overdue;
    std::vector<std::shared_ptr<Execution>> streams;
    limits_.with([&](auto& limits) {
        std::erase_if(limits, [&](Limit& limit) {
            if (limit.wish.expired() && limit.stream.expired()) return true;
            if (limit.deadline > now) return false;
            if (auto stream = limit.stream.lock()) streams.push_back(std::move(stream));
            if (auto wish = limit.wish.lock()) overdue.emplace_back(std::move(wish), std::move(limit.task));
            return true;
        });
    });
    for (const auto& stream : streams) {
        stream->own_arguments();
        stream->cancel(
            make_outcome(json_rpc::deadline_exceeded("the call's time is over; ask for more with "
                                                     "Request-Timeout")));
    }
    for (const auto& [wish, task] : overdue) {
        if (!task.empty())
            tasks_.finish(task, make_outcome(json_rpc::deadline_exceeded("the task's deadline_ms is over")));
        give_up(*wish);
    }
}

}  // namespace shared_tensor::service
