#include "service/dispatcher.hpp"

#include <algorithm>

#include "service/arguments.hpp"
#include "service/prepared_call.hpp"

namespace shared_tensor::service {

using json_rpc::Error;

namespace {

std::string keyed_name(const CallSpec& spec) {
    return spec.owner.principal + '\0' + std::string(spec.method) + '\0' + spec.idempotency_key;
}

Error key_reused() {
    return json_rpc::invalid_params("idempotency_key", "the arguments it was first used with, or a new key",
                                    "other arguments");
}

}  // namespace

Dispatcher::Dispatcher(const Registry& registry, DispatcherOptions options, WrapTensor wrap, const Clock& clock)
    : registry_(&registry),
      options_(options),
      wrap_(wrap),
      clock_(&clock),
      task_group_(tasks::make_group(std::max<std::size_t>(1, options.pool.workers - 1))),
      cache_(options.cache_bytes, clock),
      keys_(options.idempotency, clock),
      tasks_(options.tasks, clock),
      pool_(options.pool, clock) {
    for (const SharedFunction* function : registry.functions()) {
        const std::size_t limit = function->options().concurrency;
        functions_.emplace(std::string(function->name()),
                           Function{function, limit > 0 ? tasks::make_group(limit) : nullptr});
    }
}

Dispatcher::~Dispatcher() = default;

std::variant<StartedCall, Error> Dispatcher::call(const CallSpec& spec) {
    auto prepared = prepare(spec, false);
    if (auto* error = std::get_if<Error>(&prepared)) return std::move(*error);
    auto& ready = std::get<Prepared>(prepared);
    const SteadyTime deadline = clock_->now() + ready.timeout;
    auto waiter =
        spec.idempotency_key.empty() ? join_or_start(ready, spec.owner, deadline, false) : start_keyed(ready, spec);
    if (auto* error = std::get_if<Error>(&waiter)) return std::move(*error);
    return StartedCall{std::move(std::get<WaiterPointer>(waiter)), deadline};
}

std::variant<Dispatcher::Prepared, Error> Dispatcher::prepare(const CallSpec& spec, bool as_task) const {
    if (draining_.load()) return json_rpc::shutting_down();
    const auto found = functions_.find(spec.method);
    if (found == functions_.end()) return json_rpc::method_not_found(spec.method);
    const Function& function = found->second;
    const FunctionOptions& options = function.shared->options();
    if (options.runs == execution::task && !as_task) {
        return json_rpc::invalid_request("this function runs as a task only: call task.submit with {method, params}");
    }
    if (spec.idempotency_key.size() > keys_.limits().max_key_bytes) {
        return json_rpc::invalid_params("idempotency_key",
                                        "at most " + std::to_string(keys_.limits().max_key_bytes) + " bytes",
                                        std::to_string(spec.idempotency_key.size()));
    }
    auto nodes = match_arguments(*function.shared, spec.params);
    if (auto* error = std::get_if<Error>(&nodes)) return std::move(*error);
    codec::JsonSource source(spec.port);
    Binding binding = function.shared->bind(source, std::get<ArgumentNodes>(nodes));
    if (binding.failure) return to_error(*binding.failure);

    Prepared prepared{&function, std::move(binding.call), {}, {}, options_.call_timeout};
    const bool cacheable = options_.cache && options.cached && !options.stateful;
    if (cacheable || !spec.idempotency_key.empty()) {
        prepared.arguments = arguments_key(std::get<ArgumentNodes>(nodes), source);
    }
    if (cacheable && !prepared.arguments.empty()) {
        prepared.cache_key = std::string(spec.method) + '\0' + std::string(options.version) + '\0' +
                             spec.owner.principal + '\0' + prepared.arguments;
    }
    if (options.timeout.count() > 0) prepared.timeout = options.timeout;
    if (spec.timeout) prepared.timeout = *spec.timeout;
    return prepared;
}

std::shared_ptr<Execution> Dispatcher::make_execution(Prepared& prepared, CallOwner owner, SteadyTime deadline) {
    return std::make_shared<Execution>(
        Execution::Setup{prepared.function->shared, std::move(prepared.call), std::move(owner), deadline, wrap_});
}

std::variant<Dispatcher::WaiterPointer, Error> Dispatcher::join_or_start(Prepared& prepared, const CallOwner& owner,
                                                                         SteadyTime deadline, bool as_task) {
    if (prepared.cache_key.empty()) return start(prepared, owner, deadline, as_task);
    if (OutcomePointer known = cache_.find(prepared.cache_key)) {
        const auto execution = make_execution(prepared, owner, deadline);
        execution->finish(std::move(known));
        return execution->join();
    }
    const auto running = in_flight_.with([&](auto& runs) {
        const auto found = runs.find(prepared.cache_key);
        return found == runs.end() ? nullptr : found->second.lock();
    });
    if (running) {
        if (WaiterPointer waiter = running->join()) return waiter;
    }
    return start(prepared, owner, deadline, as_task);
}

std::variant<Dispatcher::WaiterPointer, Error> Dispatcher::start(Prepared& prepared, const CallOwner& owner,
                                                                 SteadyTime deadline, bool as_task) {
    const auto execution = make_execution(prepared, owner, deadline);
    WaiterPointer waiter = execution->join();
    if (!prepared.cache_key.empty()) keep_result(execution, prepared);
    if (auto error = enqueue(execution, prepared, owner, as_task)) {
        execution->finish(make_outcome(*error));  // for those who joined meanwhile
        return std::move(*error);
    }
    return waiter;
}

/// A call with a key runs to its end even if its client goes away: the key says that it will come back for the result.
/// Keys are for functions with side effects, so the cache is not asked.
std::variant<Dispatcher::WaiterPointer, Error> Dispatcher::start_keyed(Prepared& prepared, const CallSpec& spec) {
    const std::string key = keyed_name(spec);
    const std::string arguments = prepared.arguments;
    auto known = keys_.find(key, arguments);
    std::shared_ptr<Execution> execution;
    if (!known) {
        execution = make_execution(prepared, spec.owner, SteadyTime::max());
        known = keys_.insert(key, arguments, execution);
    }
    if (known) {
        auto* first = std::get_if<std::shared_ptr<Execution>>(&known->run);
        if (!known->same_arguments || first == nullptr) return key_reused();
        if (WaiterPointer waiter = (*first)->join()) return waiter;
        return json_rpc::cancelled("the call with this idempotency key was cancelled: use a new key to run it again");
    }
    std::shared_ptr<Execution::Waiter> kept(execution->join());
    execution->observe({{}, {}, [this, key, kept](const OutcomePointer& outcome) {
                            keys_.account(key, outcome->host_bytes() + outcome->device_bytes());
                        }});
    WaiterPointer waiter = execution->join();
    if (auto error = enqueue(execution, prepared, spec.owner, false)) {
        keys_.forget(key);
        execution->finish(make_outcome(*error));
        return std::move(*error);
    }
    return waiter;
}

std::optional<Error> Dispatcher::enqueue(const std::shared_ptr<Execution>& execution, const Prepared& prepared,
                                         const CallOwner& owner, bool as_task) {
    const FunctionOptions& options = prepared.function->shared->options();
    std::vector<std::shared_ptr<tasks::Group>> groups;
    if (prepared.function->group) groups.push_back(prepared.function->group);
    if (options.stateful && !owner.session.empty()) groups.push_back(session_group(owner.session));
    if (options.runs == execution::inline_ && groups.empty() && !as_task) {
        execution->run();
        return std::nullopt;
    }
    if (as_task) groups.push_back(task_group_);
    live_.with([&](auto& live) { live.emplace(execution.get(), execution); });
    execution->observe({{}, {}, [this, key = execution.get()](const OutcomePointer&) {
                            live_.with([&](auto& live) { live.erase(key); });
                        }});
    const auto job = std::make_shared<tasks::Job>();
    job->groups = std::move(groups);
    job->run = [execution] { execution->run(); };
    execution->on_cancelled([this, weak = std::weak_ptr(job)] {
        const auto pending = weak.lock();
        if (pending && !pool_.withdraw(pending)) pool_.abandon(pending);
    });
    switch (pool_.submit(job)) {
        case tasks::WorkerPool::Submitted::accepted: return std::nullopt;
        case tasks::WorkerPool::Submitted::full: return busy();
        case tasks::WorkerPool::Submitted::stopping: break;
    }
    return json_rpc::shutting_down();
}

Error Dispatcher::busy() const { return json_rpc::busy(pool_.retry_after()); }

std::shared_ptr<tasks::Group> Dispatcher::session_group(const std::string& session) {
    return session_groups_.with([&](auto& groups) {
        std::shared_ptr<tasks::Group> group = groups[session].lock();
        if (!group) groups[session] = group = tasks::make_group(1);
        return group;
    });
}

void Dispatcher::keep_result(const std::shared_ptr<Execution>& execution, const Prepared& prepared) {
    const std::string key = prepared.cache_key;
    in_flight_.with([&](auto& runs) { runs[key] = execution; });
    const SharedFunction* function = prepared.function->shared;
    execution->observe({{}, {}, [this, key, function, run = execution.get()](const OutcomePointer& outcome) {
                            const FunctionOptions& options = function->options();
                            cache_.store(key, function->name(), options.cache_ttl, options.cache_bytes, outcome);
                            in_flight_.with([&](auto& runs) {
                                const auto mine = runs.find(key);
                                if (mine != runs.end() && mine->second.lock().get() == run) runs.erase(mine);
                            });
                        }});
}

bool Dispatcher::drain(SteadyTime deadline) {
    refuse_new();
    const bool done = pool_.drain(deadline);
    std::vector<std::shared_ptr<Execution>> left;
    live_.with([&](auto& live) {
        for (const auto& [key, weak] : live) {
            if (auto execution = weak.lock()) left.push_back(std::move(execution));
        }
    });
    for (const auto& execution : left) {
        execution->finish(make_outcome(json_rpc::shutting_down()));
        execution->cancel();
    }
    tasks_.close();
    return done;
}

void Dispatcher::tend() {
    pool_.tend();
    tasks_.expire();
    cache_.expire();
    keys_.expire();
    end_overdue();
    session_groups_.with(
        [](auto& groups) { std::erase_if(groups, [](const auto& entry) { return entry.second.expired(); }); });
}

void Dispatcher::end_overdue() {
    const SteadyTime now = clock_->now();
    std::vector<std::shared_ptr<Execution>> overdue;
    deadlines_.with([&](auto& deadlines) {
        std::erase_if(deadlines, [&](const auto& entry) {
            auto execution = entry.second.lock();
            if (execution && entry.first > now) return false;
            if (execution) overdue.push_back(std::move(execution));
            return true;
        });
    });
    for (const auto& execution : overdue) {
        execution->finish(make_outcome(json_rpc::deadline_exceeded("the task's deadline_ms is over")));
        execution->cancel();
    }
}

}  // namespace shared_tensor::service
