#include "runtime/tasks/worker_pool.hpp"

#include <algorithm>
#include <iterator>
#include <string>
#include <system_error>
#include <utility>

#include "base/bytes/check.hpp"
#include "base/log/log.hpp"

namespace shared_tensor::tasks {

std::shared_ptr<Job> WorkerPool::State::next_job(Worker& worker, SteadyTime now) {
    auto job = queue.pop();
    ++busy;
    worker.current = job.get();
    worker.started_at = now;
    return job;
}

/// An exponential average, so recent runs count more. The first run sets it.
void WorkerPool::State::note_run(SteadyTime::duration run) {
    const double ns = std::chrono::duration<double, std::nano>(run).count();
    constexpr double kWeight = 1.0 / 16;
    mean_run_ns += mean_run_ns == 0 ? ns : (ns - mean_run_ns) * kWeight;
}

/// To drop a ready job makes room for parked jobs, which become ready. Once no job runs, this drops all jobs.
void WorkerPool::State::drop_waiting(std::vector<std::shared_ptr<Job>>& dropped) {
    while (auto job = queue.pop()) {
        queue.release(job->groups);
        dropped.push_back(std::move(job));
    }
}

/// Called when the thread of `worker` is about to end; sweep() joins it.
void WorkerPool::State::retire(Worker& worker) {
    const auto found =
        std::find_if(workers.begin(), workers.end(), [&](const auto& one) { return one.get() == &worker; });
    left.push_back(std::move(*found));
    workers.erase(found);
}

WorkerPool::WorkerPool(WorkerLimits limits, const Clock& clock, SpareWorkers spare)
    : limits_(limits), spare_(spare), clock_(clock) {
    SHARED_TENSOR_CHECK(limits.workers > 0, "a pool needs a worker");
    auto state = state_.lock();  // no worker asks for it before it has a job
    state->idle.reserve(limits.workers + spare.most);
    state->workers.reserve(limits.workers + spare.most);
    state->left.reserve(limits.workers + spare.most);
    for (std::size_t i = 0; i < limits.workers; ++i)
        state->workers.push_back(make_worker(++state->named));
    for (auto worker = state->workers.rbegin(); worker != state->workers.rend(); ++worker)
        state->idle.push_back(worker->get());
}

WorkerPool::~WorkerPool() {
    std::vector<std::shared_ptr<Job>> dropped;
    Workers workers, left;
    {
        auto state = state_.lock();
        state->draining = state->closing = true;
        state->drop_waiting(dropped);
        state.wait([](const State& held) { return held.quiet(); });
        state->drop_waiting(dropped);  // jobs that waited for a place of a job that has ended now
        workers.swap(state->workers);
        left.swap(state->left);
    }
    for (const auto& worker : workers)
        worker->leave();
    // Join all workers before any is destroyed: one may still be posting a job to another.
    for (const auto* threads : {&workers, &left}) {
        for (const auto& worker : *threads)
            worker->join();
    }
}

std::unique_ptr<Worker> WorkerPool::make_worker(std::size_t number) {
    return std::make_unique<Worker>("st-worker-" + std::to_string(number),
                                    [this](Worker& worker, Job& job) { return finished(worker, job); });
}

/// Changes the state, and then starts the jobs that can run. Their workers are called without the lock.
template <class Change>
auto WorkerPool::change(Change use) {
    const SteadyTime now = clock_.now();
    Worker* assigned = nullptr;
    bool wake_waiters = false;
    auto result = state_.with([&](State& state) {
        auto made = use(state, now);
        if (!state.closing) assigned = assign(state, now);
        wake_waiters = state.draining;
        return made;
    });
    while (assigned != nullptr) {
        Worker* const next = assigned->next_assigned;  // read first: after post() it may be assigned again
        assigned->post(std::move(assigned->assigned));
        assigned = next;
    }
    if (wake_waiters) state_.notify_all();
    return result;
}

WorkerPool::Submitted WorkerPool::submit(std::shared_ptr<Job> job) {
    return change([&](State& state, SteadyTime) {
        if (state.draining) return Submitted::stopping;
        const bool at_once = state.busy < limits_.workers && JobQueue::has_room(job->groups);
        const std::size_t limit = limits_.queue_limit - (job->is_task ? limits_.kept_for_calls() : 0);
        if (!at_once && state.queue.size() >= limit) {
            ++state.rejected;
            return Submitted::full;
        }
        state.queue.push(std::move(job));
        return Submitted::accepted;
    });
}

/// Chooses idle workers for the ready jobs. Returns them as a linked list, since jobs are posted after the lock is
/// released.
Worker* WorkerPool::assign(State& state, SteadyTime now) const {
    Worker* chain = nullptr;
    while (state.busy < limits_.workers && state.queue.any_ready()) {
        Worker* worker = state.idle.back();
        state.idle.pop_back();
        worker->assigned = state.next_job(*worker, now);
        worker->next_assigned = std::exchange(chain, worker);
    }
    return chain;
}

Worker::Next WorkerPool::finished(Worker& worker, Job& job) {
    return change([&](State& state, SteadyTime now) {
        ++state.finished;
        state.note_run(now - worker.started_at);
        worker.current = nullptr;
        state.queue.release(job.groups);
        --(worker.replaced ? state.replaced : state.busy);
        Worker::Next next;
        if (worker.replaced) {
            next.leave = true;
            state.retire(worker);
        } else if (!state.closing && state.queue.any_ready()) {
            next.job = state.next_job(worker, now);
        } else {
            state.idle.push_back(&worker);
        }
        return next;
    });
}

bool WorkerPool::withdraw(const std::shared_ptr<Job>& job) {
    return change([&](State& state, SteadyTime) { return state.queue.withdraw(*job); });
}

std::optional<WorkerPool::Place> WorkerPool::try_hold(const Groups& groups) {
    Groups held = groups;  // copied before places are taken: it may run out of memory
    const bool has_room = state_.with([&](State& state) {
        if (state.draining || !JobQueue::has_room(held)) return false;
        JobQueue::take(held);
        return true;
    });
    if (!has_room) return std::nullopt;
    return Place(*this, std::move(held));
}

WorkerPool::Place::~Place() {
    if (pool_ == nullptr) return;
    pool_->change([&](State& state, SteadyTime) {
        state.queue.release(groups_);
        return true;
    });
}

void WorkerPool::abandon(const std::shared_ptr<Job>& job) {
    const SteadyTime now = clock_.now();
    state_.with([&](State&) {
        if (!job->notes.abandoned_at) job->notes.abandoned_at = now;
    });
}

bool WorkerPool::overdue(const Worker& worker, SteadyTime now) const {
    if (worker.current == nullptr || !worker.current->notes.abandoned_at) return false;
    return now - std::max(*worker.current->notes.abandoned_at, worker.started_at) >= spare_.after;
}

Worker* WorkerPool::to_replace(const State& state, SteadyTime now) const {
    if (state.closing || state.replaced >= spare_.most) return nullptr;
    for (const auto& worker : state.workers) {
        if (!worker->replaced && overdue(*worker, now)) return worker.get();
    }
    return nullptr;
}

/// Replaces an overdue worker by `fresh`; false if no worker is overdue.
bool WorkerPool::replace_one(std::unique_ptr<Worker>& fresh) {
    return change([&](State& state, SteadyTime now) {
        Worker* overdue_worker = to_replace(state, now);
        if (overdue_worker == nullptr) return false;
        overdue_worker->replaced = true;
        ++state.replaced;
        --state.busy;
        state.idle.push_back(fresh.get());
        state.workers.push_back(std::move(fresh));
        return true;
    });
}

void WorkerPool::sweep() {
    const SteadyTime now = clock_.now();
    Workers left;  // destroyed, and so joined, without the lock
    const auto next_number = [&](State& state) { return to_replace(state, now) != nullptr ? ++state.named : 0; };
    state_.with([&](State& state) {
        left.reserve(state.left.size());
        std::move(state.left.begin(), state.left.end(), std::back_inserter(left));
        state.left.clear();
    });
    while (const std::size_t number = state_.with(next_number)) {
        try {
            auto fresh = make_worker(number);
            if (!replace_one(fresh)) return;
        } catch (const std::system_error& error) {
            log::warn("cannot start a worker in place of one that hangs in a shared function: ", error.what());
            return;
        }
        log::warn("a shared function that nobody waits for goes on for long: st-worker-", number,
                  " takes its worker's place");
    }
}

bool WorkerPool::healthy() const {
    const SteadyTime now = clock_.now();
    return state_.with([&](const State& state) {
        if (state.replaced < spare_.most) return true;
        return !std::all_of(state.workers.begin(), state.workers.end(),
                            [&](const auto& worker) { return overdue(*worker, now); });
    });
}

std::chrono::milliseconds WorkerPool::retry_after() const {
    using std::chrono::milliseconds;
    const SteadyTime now = clock_.now();
    const double wait_ns = state_.with([&](const State& state) {
        double running_ns = 0;  // running jobs may take longer than those that ended
        for (const auto& worker : state.workers) {
            if (worker->current == nullptr || worker->replaced) continue;
            running_ns += std::chrono::duration<double, std::nano>(now - worker->started_at).count();
        }
        const auto workers = static_cast<double>(limits_.workers);
        return std::max(state.mean_run_ns, running_ns / workers) * static_cast<double>(state.queue.size() + 1) /
               workers;
    });
    constexpr double kMostMs = 30'000;
    return milliseconds(static_cast<std::int64_t>(std::clamp(wait_ns / 1e6, 1.0, kMostMs)));
}

bool WorkerPool::drain(SteadyTime deadline) {
    auto state = state_.lock();
    state->draining = true;
    return state.wait_until(deadline, [](const State& held) { return held.quiet(); });
}

PoolStats WorkerPool::stats() const {
    return state_.with([&](const State& state) {
        return PoolStats{limits_.workers, state.busy,     state.queue.size(),
                         state.replaced,  state.finished, state.rejected};
    });
}

}  // namespace shared_tensor::tasks
