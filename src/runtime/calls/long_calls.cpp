// Calls that no request waits for: tasks, streams, and what ends them at their deadlines.

#include <new>
#include <utility>

#include "base/concurrency/at_end.hpp"
#include "base/system/descriptor_store.hpp"
#include "runtime/calls/dispatcher.hpp"

namespace shared_tensor::runtime {

using json_rpc::Error;

std::variant<std::optional<tasks::TaskInfo>, Error> Dispatcher::submit(const CallSpec& spec,
                                                                       const TaskOptions& options) {
    auto prepared = prepare(spec, Kind::task);
    if (auto* error = std::get_if<Error>(&prepared)) return std::move(*error);
    auto& ready = std::get<Prepared>(prepared);

    const bool keyed = !spec.idempotency_key.empty();
    const std::string key =
        spec.owner.principal + '\0' + "task.submit" + '\0' + std::string(spec.method) + '\0' + spec.idempotency_key;
    const std::string digest = keyed ? digest_of(ready.arguments) : std::string();
    using Answer = std::variant<std::optional<tasks::TaskInfo>, Error>;
    const auto answer_again = [&](const IdempotencyTable::Known& known) -> Answer {
        if (!known.same_arguments) return key_reused();
        if (std::holds_alternative<OutcomePointer>(known.run)) return json_rpc::outcome_unknown();
        return tasks_.get(std::get<std::string>(known.run), std::nullopt);
    };
    if (keyed) {
        if (is_idempotent(*ready.function)) keys_.forget_unknown(key);
        if (const auto known = keys_.find(key, digest)) return answer_again(*known);
    }

    const auto keeper = std::make_shared<Keeper>();  // given up by task.cancel, and when the task ends
    const auto id =
        tasks_.create({std::string(spec.method), spec.owner.principal, options.ttl, [keeper] { abandon(*keeper); }});
    if (!id) return draining_.load() ? json_rpc::shutting_down() : busy();
    bool is_kept = false, has_key = false;
    const AtEnd undo([&] {
        try {
            if (!is_kept) tasks_.forget(*id);
            if (!is_kept && has_key) keys_.forget(key);
        } catch (const std::bad_alloc&) {  // the task is pending for ever, but the server goes on
        }
    });
    auto created = tasks_.get(*id, std::nullopt);
    try {
        if (const auto first = keyed ? keys_.insert(key, digest, *id) : std::nullopt) return answer_again(*first);
        has_key = keyed;
    } catch (const NotStored& error) {
        return json_rpc::out_of_memory(error.what());
    }
    CallOwner owner = spec.owner;
    owner.task = *id;
    begin_span(owner);
    const SteadyTime deadline = options.deadline ? clock_->now() + *options.deadline : SteadyTime::max();
    auto started = join_or_start(ready, owner, deadline, true);
    if (auto* error = std::get_if<Error>(&started)) return std::move(*error);
    auto& waiter = std::get<WaiterPointer>(started);
    const std::shared_ptr<Execution> execution = waiter->execution();
    keeper->with([&](auto& held) { held = std::move(waiter); });
    follow_as_task(*execution, *id, ready.function->run_time);
    if (keyed) {
        execution->observe({{}, {}, [this, key](const OutcomePointer& outcome) {
                                if (ended_with_server(*outcome)) return note_cut(key, *outcome);
                                if (outcome->code() == static_cast<int>(ErrorCode::busy)) return keys_.forget(key);
                                keys_.ended(key, 0);
                            }});
    }
    auto info = tasks_.get(*id, std::nullopt);
    if (info && info->state == tasks::TaskState::cancelled)
        abandon(*keeper);  // cancelled before the keeper had a waiter
    if (options.deadline) {
        end_at(deadline, keeper, [this, id = *id](Keeper& held) {
            tasks_.finish(id, make_outcome(json_rpc::deadline_exceeded("the task's deadline_ms is over")));
            abandon(held);
        });
    }
    is_kept = true;
    try {
        tasks_.keep_bounds();
    } catch (const std::bad_alloc&) {  // the next task keeps them
    }
    return info ? std::move(info) : std::move(created);  // with a ttl of 0 the task may already be removed
}

/// The run of a task has a span of its own, below the span of task.submit.
void Dispatcher::begin_span(CallOwner& owner) const {
    if (options_.reporting.spans == nullptr) return;
    OpenSpan open = options_.reporting.spans->begin(owner.traceparent);
    owner.traceparent = std::move(open.traceparent);
    owner.parent_span = std::move(open.parent);
}

void Dispatcher::follow_as_task(Execution& execution, const std::string& id, std::shared_ptr<RunTime> run_time) {
    execution.observe(
        {[this, id] { tasks_.started(id); },
         [this, id](double fraction, std::string_view message) { tasks_.progress(id, fraction, message); },
         [this, id, run_time = std::move(run_time), run = &execution](const OutcomePointer& outcome) {
             tasks_.finish(id, outcome);
             const int code = code_of_task(id, *outcome);
             run_time->calls.count(code);
             report_run(*run, code, options_.reporting);
         }});
}

/// The task may have ended before its run, by its deadline or a cancellation.
int Dispatcher::code_of_task(const std::string& id, const CallOutcome& of_run) const {
    const auto info = tasks_.get(id, std::nullopt);
    if (info && info->state == tasks::TaskState::cancelled) return static_cast<int>(ErrorCode::cancelled);
    return info && info->outcome != nullptr ? info->outcome->code() : of_run.code();
}

/// Counts one more call that streams while the result lives. Returns null if the limit is reached.
std::shared_ptr<void> Dispatcher::count_stream() {
    const bool counted = streams_->with([&](std::size_t& running) {
        if (running >= options_.max_streams) return false;
        ++running;
        return true;
    });
    if (!counted) return nullptr;
    const auto end = [](Guarded<std::size_t>* streams) {
        streams->with([](std::size_t& running) { --running; });
        streams->notify_all();
    };
    return {streams_.get(), [kept = streams_, end](void*) { end(kept.get()); }};
}

/// A call that streams mostly waits for its client. So it takes no worker, and has a limit of its own.
std::variant<StreamRun, Error> Dispatcher::open_stream(const CallSpec& spec,
                                                       std::shared_ptr<detail::CallStreams> streams,
                                                       std::function<void()> cancelled) {
    auto prepared = prepare(spec, Kind::stream);
    if (auto* error = std::get_if<Error>(&prepared)) return std::move(*error);
    auto& ready = std::get<Prepared>(prepared);
    std::shared_ptr<void> counted = count_stream();
    if (counted == nullptr) return busy();
    auto place = pool_.try_hold(groups_of(ready, spec.owner.session));
    if (!place) return json_rpc::busy(pool_.retry_after(), "calls that run now have its function or object in use");
    const bool bounded = spec.timeout || ready.function->shared->options().timeout.count() > 0;
    const SteadyTime deadline = bounded ? later(clock_->now(), ready.timeout) : SteadyTime::max();
    const auto execution = make_execution(ready, spec.owner, deadline, std::move(streams));
    execution->on_cancelled(std::move(cancelled));
    StreamRun run(execution, execution->join(), std::move(*place), std::move(counted));
    count_as_live(execution);
    if (bounded) {
        end_at(deadline, execution, [](Execution& stream) {
            stream.own_arguments();
            stream.cancel(make_outcome(
                json_rpc::deadline_exceeded("the call's time is over; ask for more with Request-Timeout")));
        });
    }
    return run;
}

void Dispatcher::abandon(Keeper& keeper) {
    WaiterPointer waiter;
    keeper.with([&](WaiterPointer& held) { waiter.swap(held); });
}  // destroys the waiter without the lock, because this may cancel the run

/// Keeps a call running until its outcome is there or the deadline is past. Other waiters keep it running after that.
void Dispatcher::keep(WaiterPointer waiter, SteadyTime deadline) {
    const std::shared_ptr<Execution> execution = waiter->execution();
    if (execution->outcome()) return;
    const auto keeper = std::make_shared<Keeper>(std::move(waiter));
    end_at(deadline, keeper, &abandon);
    execution->observe({{}, {}, [keeper](const OutcomePointer&) { abandon(*keeper); }});
}

template <class Kept, class End>
void Dispatcher::end_at(SteadyTime deadline, const std::shared_ptr<Kept>& kept, End end) {
    limits_.with([&](auto& limits) { limits.push_back({deadline, kept, [end, all = kept.get()] { end(*all); }}); });
}

void Dispatcher::end_overdue() {
    const SteadyTime now = clock_->now();
    std::vector<std::pair<std::shared_ptr<void>, std::function<void()>>> overdue;
    limits_.with([&](auto& limits) {
        std::erase_if(limits, [&](Limit& limit) {
            auto kept = limit.kept.lock();
            if (kept != nullptr && limit.deadline > now) return false;
            if (kept != nullptr) overdue.emplace_back(std::move(kept), std::move(limit.end));
            return true;
        });
    });
    for (const auto& [kept, end] : overdue)
        end();
}

}  // namespace shared_tensor::runtime
