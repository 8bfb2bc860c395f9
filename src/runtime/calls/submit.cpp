// Calls that run as tasks.

#include "runtime/calls/dispatcher.hpp"

namespace shared_tensor::runtime {

using json_rpc::Error;

std::variant<std::optional<tasks::TaskInfo>, Error> Dispatcher::submit(const CallSpec& spec,
                                                                       const TaskOptions& options) {
    auto prepared = prepare(spec, Kind::task);
    if (auto* error = std::get_if<Error>(&prepared)) return std::move(*error);
    auto& ready = std::get<Prepared>(prepared);

    const auto keeper = std::make_shared<KeptCalls::Keeper>();  // given up by task.cancel, and when the task ends
    const auto id = tasks_.create(
        {std::string(spec.method), spec.owner.principal, options.ttl, [keeper] { KeptCalls::abandon(*keeper); }});
    if (!id) return draining_.load() ? json_rpc::shutting_down() : busy();
    const auto created = tasks_.get(*id, std::nullopt);
    const std::string key =
        spec.owner.principal + '\0' + "task.submit" + '\0' + std::string(spec.method) + '\0' + spec.idempotency_key;
    if (!spec.idempotency_key.empty()) {
        if (const auto known = keys_.insert(key, ready.arguments, *id)) {
            tasks_.forget(*id);
            if (known->same_arguments) return tasks_.get(std::get<std::string>(known->run), std::nullopt);
            return json_rpc::invalid_params("idempotency_key", "the arguments it was first used with, or a new key",
                                            "other arguments");
        }
    }
    CallOwner owner = spec.owner;
    owner.task = *id;
    const SteadyTime deadline = options.deadline ? clock_->now() + *options.deadline : SteadyTime::max();
    auto started = join_or_start(ready, owner, deadline, true);
    if (auto* error = std::get_if<Error>(&started)) {
        tasks_.forget(*id);
        if (!spec.idempotency_key.empty()) keys_.forget(key);
        return std::move(*error);
    }
    auto& waiter = std::get<WaiterPointer>(started);
    const std::shared_ptr<Execution> execution = waiter->execution();
    keeper->with([&](auto& held) { held = std::move(waiter); });
    follow_as_task(*execution, *id);
    if (!spec.idempotency_key.empty()) {
        execution->observe({{}, {}, [this, key](const OutcomePointer&) { keys_.ended(key, 0); }});
    }
    const auto info = tasks_.get(*id, std::nullopt);
    if (info && info->state == tasks::TaskState::cancelled)
        KeptCalls::abandon(*keeper);  // cancelled before the keeper had a waiter
    if (options.deadline) kept_calls_.end_task_at(deadline, keeper, *id);
    return info ? info : created;  // with a ttl of 0 the task may already be removed
}

void Dispatcher::follow_as_task(Execution& execution, const std::string& id) {
    execution.observe(
        {[this, id] { tasks_.started(id); },
         [this, id](double fraction, std::string_view message) { tasks_.progress(id, fraction, message); },
         [this, id](const OutcomePointer& outcome) { tasks_.finish(id, outcome); }});
}

}  // namespace shared_tensor::runtime
