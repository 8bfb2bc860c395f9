#include "runtime/tasks/worker_pool.hpp"

#include <algorithm>
#include <string>
#include <system_error>
#include <utility>

#include "base/bytes/check.hpp"
#include "base/concurrency/guarded.hpp"
#include "base/log/log.hpp"
#include "runtime/tasks/job_queue.hpp"
#include "runtime/tasks/worker.hpp"

namespace shared_tensor::tasks {

namespace {

using Workers = std::vector<std::unique_ptr<Worker>>;

struct State {
    JobQueue queue;
    Workers workers;            // workers that may get jobs, and abandoned workers
    Workers left;               // workers whose threads have ended or are about to end
    std::vector<Worker*> idle;  // the last is used first: its caches and libtorch's thread-local pools are warm
    std::size_t busy = 0;       // at most options.workers; while it is less, there is an idle worker
    std::size_t replaced = 0;
    std::size_t named = 0;
    bool draining = false;  // rejects new jobs
    bool closing = false;   // also drops waiting jobs
    double mean_run_ns = 0;
    std::uint64_t finished = 0;
    std::uint64_t rejected = 0;

    bool quiet() const { return busy == 0 && replaced == 0 && (closing || queue.size() == 0); }
};

/// An exponential average, so recent runs count more. The first run sets it.
void note_run(State& state, SteadyTime::duration run) {
    const double ns = std::chrono::duration<double, std::nano>(run).count();
    constexpr double kWeight = 1.0 / 16;
    state.mean_run_ns += state.mean_run_ns == 0 ? ns : (ns - state.mean_run_ns) * kWeight;
}

}  // namespace

class WorkerPool::Impl {
public:
    Impl(WorkerLimits limits, const Clock& clock, SpareWorkers spare);
    ~Impl();

    Submitted submit(std::shared_ptr<Job> job);
    bool withdraw(Job& job);
    bool enter(const Groups& groups, bool as_worker);
    void exit(const Groups& groups, bool as_worker) noexcept;
    void abandon(Job& job);
    void sweep();
    bool healthy() const;
    std::chrono::milliseconds retry_after() const;
    bool drain(SteadyTime deadline);
    PoolStats stats() const;

private:
    std::unique_ptr<Worker> make_worker(std::size_t number);
    Worker::Next finished(Worker& worker, Job& job);
    static void start(Worker& worker, Job& job, SteadyTime now);
    static void retire(State& state, Worker& worker);
    bool replace_one(std::unique_ptr<Worker>& fresh, SteadyTime now);
    Worker* assign(State& state, SteadyTime now) const;
    static void post(Worker* assigned);
    bool overdue(const Worker& worker, SteadyTime now) const;
    Worker* to_replace(const State& state, SteadyTime now) const;
    static void drop_waiting(State& state, std::vector<std::shared_ptr<Job>>& dropped);

    const WorkerLimits limits_;
    const SpareWorkers spare_;
    const Clock& clock_;
    Guarded<State> state_;
};

WorkerPool::Impl::Impl(WorkerLimits limits, const Clock& clock, SpareWorkers spare)
    : limits_(limits), spare_(spare), clock_(clock) {
    SHARED_TENSOR_CHECK(limits.workers > 0, "a pool needs a worker");
    auto state = state_.lock();  // no worker asks for it before it has a job
    state->idle.reserve(limits.workers + spare.most);
    state->workers.reserve(limits.workers + spare.most);
    state->left.reserve(limits.workers + spare.most);
    for (std::size_t i = 0; i < limits.workers; ++i) {
        state->workers.push_back(make_worker(++state->named));
    }
    for (auto worker = state->workers.rbegin(); worker != state->workers.rend(); ++worker) {
        state->idle.push_back(worker->get());
    }
}

WorkerPool::Impl::~Impl() {
    std::vector<std::shared_ptr<Job>> dropped;
    Workers workers, left;
    {
        auto state = state_.lock();
        state->draining = state->closing = true;
        drop_waiting(*state, dropped);
        state.wait([](const State& held) { return held.quiet(); });
        drop_waiting(*state, dropped);  // jobs that waited for a place of a job that has ended now
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

/// To drop a ready job makes room for parked jobs, which become ready. Once no job runs, this drops all jobs.
void WorkerPool::Impl::drop_waiting(State& state, std::vector<std::shared_ptr<Job>>& dropped) {
    while (auto job = state.queue.pop()) {
        state.queue.release(job->groups);
        dropped.push_back(std::move(job));
    }
}

std::unique_ptr<Worker> WorkerPool::Impl::make_worker(std::size_t number) {
    return std::make_unique<Worker>("st-worker-" + std::to_string(number),
                                    [this](Worker& worker, Job& job) { return finished(worker, job); });
}

WorkerPool::Submitted WorkerPool::Impl::submit(std::shared_ptr<Job> job) {
    const SteadyTime now = clock_.now();
    Worker* assigned = nullptr;
    const auto outcome = state_.with([&](State& state) {
        if (state.draining) return Submitted::stopping;
        const bool at_once = state.busy < limits_.workers && JobQueue::has_room(job->groups);
        const std::size_t limit = limits_.queue_limit - (job->is_task ? limits_.kept_for_calls() : 0);
        if (!at_once && state.queue.size() >= limit) {
            ++state.rejected;
            return Submitted::full;
        }
        state.queue.push(std::move(job));
        assigned = assign(state, now);
        return Submitted::accepted;
    });
    post(assigned);
    return outcome;
}

void WorkerPool::Impl::start(Worker& worker, Job& job, SteadyTime now) {
    worker.current = &job;
    worker.started_at = now;
}

/// Chooses idle workers for the ready jobs. Returns them as a linked list, since jobs are posted after the lock is
/// released.
Worker* WorkerPool::Impl::assign(State& state, SteadyTime now) const {
    Worker* chain = nullptr;
    while (state.busy < limits_.workers && state.queue.any_ready()) {
        Worker* worker = state.idle.back();
        state.idle.pop_back();
        ++state.busy;
        worker->assigned = state.queue.pop();
        start(*worker, *worker->assigned, now);
        worker->next_assigned = std::exchange(chain, worker);
    }
    return chain;
}

void WorkerPool::Impl::post(Worker* assigned) {
    while (assigned != nullptr) {
        Worker* next = assigned->next_assigned;  // read first: after post() it may be assigned again
        assigned->post(std::move(assigned->assigned));
        assigned = next;
    }
}

Worker::Next WorkerPool::Impl::finished(Worker& worker, Job& job) {
    const SteadyTime now = clock_.now();
    Worker* assigned = nullptr;
    bool wake_waiters = false;
    auto next = state_.with([&](State& state) {
        ++state.finished;
        note_run(state, now - worker.started_at);
        worker.current = nullptr;
        state.queue.release(job.groups);
        --(worker.replaced ? state.replaced : state.busy);
        Worker::Next mine;
        if (worker.replaced) {
            mine.leave = true;
            retire(state, worker);
        } else if (!state.closing && state.queue.any_ready()) {
            ++state.busy;
            mine.job = state.queue.pop();
            start(worker, *mine.job, now);
        } else {
            state.idle.push_back(&worker);
        }
        if (!state.closing) assigned = assign(state, now);
        wake_waiters = state.draining;
        return mine;
    });
    post(assigned);
    if (wake_waiters) state_.notify_all();
    return next;
}

/// Called when the thread of `worker` is about to end; sweep() joins it.
void WorkerPool::Impl::retire(State& state, Worker& worker) {
    const auto found =
        std::find_if(state.workers.begin(), state.workers.end(), [&](const auto& one) { return one.get() == &worker; });
    state.left.push_back(std::move(*found));
    state.workers.erase(found);
}

bool WorkerPool::Impl::withdraw(Job& job) {
    const SteadyTime now = clock_.now();
    Worker* assigned = nullptr;
    bool wake_waiters = false;
    const bool withdrawn = state_.with([&](State& state) {
        if (!state.queue.withdraw(job)) return false;
        assigned = assign(state, now);  // it may have held a place that another job waits for
        wake_waiters = state.draining;
        return true;
    });
    post(assigned);
    if (wake_waiters) state_.notify_all();
    return withdrawn;
}

bool WorkerPool::Impl::enter(const Groups& groups, bool as_worker) {
    return state_.with([&](State& state) {
        if (state.draining || (as_worker && state.busy >= limits_.workers) || !JobQueue::has_room(groups)) return false;
        JobQueue::take(groups);
        if (as_worker) ++state.busy;
        return true;
    });
}

void WorkerPool::Impl::exit(const Groups& groups, bool as_worker) noexcept {
    Worker* assigned = nullptr;
    bool wake_waiters = false;
    state_.with([&](State& state) {
        if (as_worker) {
            ++state.finished;
            --state.busy;
        }
        state.queue.release(groups);
        if (!state.closing && state.queue.any_ready()) assigned = assign(state, clock_.now());
        wake_waiters = state.draining;
    });
    post(assigned);
    if (wake_waiters) state_.notify_all();
}

void WorkerPool::Impl::abandon(Job& job) {
    const SteadyTime now = clock_.now();
    state_.with([&](State&) {
        if (!job.notes.abandoned_at) job.notes.abandoned_at = now;
    });
}

bool WorkerPool::Impl::overdue(const Worker& worker, SteadyTime now) const {
    if (worker.current == nullptr || !worker.current->notes.abandoned_at) return false;
    return now - std::max(*worker.current->notes.abandoned_at, worker.started_at) >= spare_.after;
}

Worker* WorkerPool::Impl::to_replace(const State& state, SteadyTime now) const {
    if (state.closing || state.replaced >= spare_.most) return nullptr;
    for (const auto& worker : state.workers) {
        if (!worker->replaced && overdue(*worker, now)) return worker.get();
    }
    return nullptr;
}

/// Replaces an overdue worker by `fresh`; false if no worker is overdue.
bool WorkerPool::Impl::replace_one(std::unique_ptr<Worker>& fresh, SteadyTime now) {
    Worker* assigned = nullptr;
    const bool replaced = state_.with([&](State& state) {
        Worker* overdue_worker = to_replace(state, now);
        if (overdue_worker == nullptr) return false;
        overdue_worker->replaced = true;
        ++state.replaced;
        --state.busy;
        state.idle.push_back(fresh.get());
        state.workers.push_back(std::move(fresh));
        assigned = assign(state, now);
        return true;
    });
    post(assigned);
    return replaced;
}

void WorkerPool::Impl::sweep() {
    const SteadyTime now = clock_.now();
    Workers left;  // destroyed, and so joined, without the lock
    const auto next_number = [&](State& state) { return to_replace(state, now) != nullptr ? ++state.named : 0; };
    state_.with([&](State& state) {
        for (auto& worker : state.left)
            left.push_back(std::move(worker));
        state.left.clear();
    });
    while (const std::size_t number = state_.with(next_number)) {
        try {
            auto fresh = make_worker(number);
            if (!replace_one(fresh, now)) return;
        } catch (const std::system_error& error) {
            log::warn("cannot start a worker in place of one that hangs in a shared function: ", error.what());
            return;
        }
        log::warn("a shared function that nobody waits for goes on for long: st-worker-", number,
                  " takes its worker's place");
    }
}

bool WorkerPool::Impl::healthy() const {
    const SteadyTime now = clock_.now();
    return state_.with([&](const State& state) {
        if (state.replaced < spare_.most) return true;
        return !std::all_of(state.workers.begin(), state.workers.end(),
                            [&](const auto& worker) { return overdue(*worker, now); });
    });
}

std::chrono::milliseconds WorkerPool::Impl::retry_after() const {
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

bool WorkerPool::Impl::drain(SteadyTime deadline) {
    auto state = state_.lock();
    state->draining = true;
    return state.wait_until(deadline, [](const State& held) { return held.quiet(); });
}

PoolStats WorkerPool::Impl::stats() const {
    return state_.with([&](const State& state) {
        return PoolStats{limits_.workers, state.busy,     state.queue.size(),
                         state.replaced,  state.finished, state.rejected};
    });
}

WorkerPool::Place::Place(WorkerPool& pool, Groups groups, bool of_worker)
    : pool_(&pool), groups_(std::move(groups)), of_worker_(of_worker) {}
WorkerPool::Place::Place(Place&& other) noexcept
    : pool_(std::exchange(other.pool_, nullptr)), groups_(std::move(other.groups_)), of_worker_(other.of_worker_) {}
WorkerPool::Place::~Place() {
    if (pool_ != nullptr) pool_->impl_->exit(groups_, of_worker_);
}

WorkerPool::WorkerPool(WorkerLimits limits, const Clock& clock, SpareWorkers spare)
    : impl_(std::make_unique<Impl>(limits, clock, spare)) {}
WorkerPool::~WorkerPool() = default;

WorkerPool::Submitted WorkerPool::submit(std::shared_ptr<Job> job) { return impl_->submit(std::move(job)); }
bool WorkerPool::withdraw(const std::shared_ptr<Job>& job) { return impl_->withdraw(*job); }

std::optional<WorkerPool::Place> WorkerPool::try_enter(const Groups& groups) {
    Groups held = groups;  // copied before places are taken: it may run out of memory
    if (!impl_->enter(held, true)) return std::nullopt;
    return Place(*this, std::move(held), true);
}

std::optional<WorkerPool::Place> WorkerPool::try_hold(const Groups& groups) {
    Groups held = groups;
    if (!impl_->enter(held, false)) return std::nullopt;
    return Place(*this, std::move(held), false);
}

void WorkerPool::abandon(const std::shared_ptr<Job>& job) { impl_->abandon(*job); }
void WorkerPool::sweep() { impl_->sweep(); }
bool WorkerPool::healthy() const { return impl_->healthy(); }
std::chrono::milliseconds WorkerPool::retry_after() const { return impl_->retry_after(); }
bool WorkerPool::drain(SteadyTime deadline) { return impl_->drain(deadline); }
PoolStats WorkerPool::stats() const { return impl_->stats(); }

}  // namespace shared_tensor::tasks
