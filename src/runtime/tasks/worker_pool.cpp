#include "runtime/tasks/worker_pool.hpp"

#include <algorithm>
#include <exception>
#include <new>
#include <thread>
#include <utility>

#include "base/bytes/check.hpp"
#include "base/concurrency/at_end.hpp"
#include "base/log/log.hpp"

namespace shared_tensor::tasks {

namespace {

constexpr std::chrono::seconds kSurplusLimit{10};  // a worker that is no longer needed ends after that time

void run_job(Job& job) noexcept {
    try {
        job.run();
    } catch (const std::exception& error) {
        log::error("a job threw, which it must not: ", error.what());
    } catch (...) {
        log::error("a job threw, which it must not");
    }
    job.run = nullptr;  // destroys what it owns before the pool counts the job as done
}

}  // namespace

class WorkerPool::Worker final : public ElasticPool<JobPointer>::Worker {
public:
    explicit Worker(WorkerPool& pool) : pool_(&pool) {}
    void serve(JobPointer job) override {
        while (job != nullptr) {
            run_job(*job);
            job = pool_->finished(*job);
        }
    }

private:
    WorkerPool* pool_;
};

WorkerPool::JobPointer WorkerPool::State::next_job(SteadyTime now) {
    auto job = queue.pop();
    count_as_running(*job, now);
    return job;
}

void WorkerPool::State::count_as_running(Job& job, SteadyTime now) {
    ++busy;
    job.notes.started_at = now;
    running.push_back(&job);  // has room
}

/// An exponential average, so recent runs count more. The first run sets it.
void WorkerPool::State::note_run(SteadyTime::duration run) {
    const double ns = std::chrono::duration<double, std::nano>(run).count();
    constexpr double kWeight = 1.0 / 16;
    mean_run_ns += mean_run_ns == 0 ? ns : (ns - mean_run_ns) * kWeight;
}

/// To drop a ready job makes room for parked jobs, which become ready. Once no job runs, this drops all jobs.
void WorkerPool::State::drop_waiting(std::vector<JobPointer>& dropped) {
    while (auto job = queue.pop()) {
        queue.release(job->groups);
        dropped.push_back(std::move(job));
    }
}

WorkerPool::WorkerPool(WorkerLimits limits, const Clock& clock, SpareWorkers spare)
    : limits_(limits),
      spare_(spare),
      clock_(clock),
      threads_(
          "st-worker", limits.workers + spare.most, kSurplusLimit, [this] { return std::make_unique<Worker>(*this); },
          ElasticPool<JobPointer>::Size::fixed) {
    SHARED_TENSOR_CHECK(limits.workers > 0, "a pool needs a worker");
    state_.with([&](State& state) { state.running.reserve(limits.workers + spare.most); });
    threads_.start(limits.workers);
}

WorkerPool::~WorkerPool() {
    std::vector<JobPointer> dropped;
    auto state = state_.lock();
    state->draining = state->closing = true;
    state->drop_waiting(dropped);
    state.wait([](const State& held) { return held.quiet(); });
    state->drop_waiting(dropped);  // jobs that waited for a place of a job that has ended now
}

/// The thread that becomes idle next takes the job, if none is idle at this moment.
void WorkerPool::give(JobPointer job) {
    for (;;) {
        try {
            threads_.submit(job);
            return;
        } catch (const std::bad_alloc&) {  // no memory to queue it: wait for that thread
            std::this_thread::yield();
        }
    }
}

/// Changes the state, and then starts the jobs that can run. Their workers are called without the lock.
template <class Change>
auto WorkerPool::change(Change use) {
    const SteadyTime now = clock_.now();
    JobPointer assigned;
    bool wake_waiters = false;
    auto result = state_.with([&](State& state) {
        auto made = use(state, now);
        if (!state.closing) assigned = assign(state, now);
        wake_waiters = state.draining;
        return made;
    });
    while (assigned != nullptr) {
        JobPointer next = std::move(assigned->notes.next_assigned);
        give(std::move(assigned));
        assigned = std::move(next);
    }
    if (wake_waiters) state_.notify_all();
    return result;
}

WorkerPool::Submitted WorkerPool::submit(std::shared_ptr<Job> job) {
    return change([&](State& state, SteadyTime) {
        if (state.draining) return Submitted::stopping;
        const bool at_once = state.busy < limits_.workers && JobQueue::has_room(job->groups);
        const std::size_t limit = limits_.queue_limit - (job->is_task ? limits_.kept_for_calls() : 0);
        const bool is_full = state.queue.size() >= limit && (limit == 0 || state.queue.has_waiting(job->owner));
        if (!at_once && is_full) {
            ++state.rejected;
            return Submitted::full;
        }
        state.queue.push(std::move(job));
        return Submitted::accepted;
    });
}

bool WorkerPool::run_here(const JobPointer& job) {
    const SteadyTime now = clock_.now();
    const bool has_place = state_.with([&](State& state) {
        if (state.draining || state.busy >= limits_.workers) return false;
        state.count_as_running(*job, now);
        return true;
    });
    if (!has_place) return false;
    run_job(*job);
    if (JobPointer next = finished(*job)) give(std::move(next));
    return true;
}

/// Chooses the ready jobs that workers can take. Returns the first of a linked list, since jobs are given to workers
/// after the lock is released.
WorkerPool::JobPointer WorkerPool::assign(State& state, SteadyTime now) const {
    JobPointer first;
    while (state.busy < limits_.workers && state.queue.any_ready()) {
        JobPointer job = state.next_job(now);
        job->notes.next_assigned = std::exchange(first, job);
    }
    return first;
}

/// The next job of the worker; null if there is none.
WorkerPool::JobPointer WorkerPool::finished(Job& job) {
    bool was_replaced = false;
    JobPointer next = change([&](State& state, SteadyTime now) -> JobPointer {
        ++state.finished;
        state.note_run(now - job.notes.started_at);
        std::erase(state.running, &job);
        state.queue.release(job.groups);
        was_replaced = job.notes.replaced;
        --(was_replaced ? state.replaced : state.busy);
        const bool goes_on = !was_replaced && !state.closing && state.queue.any_ready();
        return goes_on ? state.next_job(now) : nullptr;
    });
    if (was_replaced) threads_.release_hold();
    return next;
}

bool WorkerPool::withdraw(const std::shared_ptr<Job>& job) {
    return change([&](State& state, SteadyTime) { return state.queue.withdraw(*job); });
}

std::optional<WorkerPool::Place> WorkerPool::try_hold(const Groups& groups) {
    Groups held = groups;  // copied before places are taken: it may run out of memory
    JobQueue::arrange(held);
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

bool WorkerPool::overdue(const Job& job, SteadyTime now) const {
    return job.notes.abandoned_at && now - std::max(*job.notes.abandoned_at, job.notes.started_at) >= spare_.after;
}

Job* WorkerPool::to_replace(const State& state, SteadyTime now) const {
    if (state.closing || state.replaced >= spare_.most) return nullptr;
    for (Job* const job : state.running) {
        if (!job->notes.replaced && overdue(*job, now)) return job;
    }
    return nullptr;
}

void WorkerPool::release_share_of_workers(State& state, Job& job) {
    const auto share =
        std::find_if(job.groups.begin(), job.groups.end(), [](const Claim& claim) { return claim.group->of_workers; });
    if (share == job.groups.end()) return;
    const Groups released{*share};
    job.groups.erase(share);
    state.queue.release(released);
}

/// Holds one thread more for each overdue job, so that as many as `workers` are left for other jobs.
void WorkerPool::sweep() {
    const SteadyTime now = clock_.now();
    while (state_.with([&](const State& state) { return to_replace(state, now) != nullptr; }) && threads_.hold()) {
        bool replaces = false;
        const AtEnd unneeded([&] {
            if (!replaces) threads_.release_hold();
        });
        replaces = change([&](State& state, SteadyTime) {
            Job* const job = to_replace(state, now);
            if (job == nullptr) return false;
            release_share_of_workers(state, *job);
            job->notes.replaced = true;
            ++state.replaced;
            --state.busy;
            return true;
        });
        if (!replaces) return;
        log::warn(
            "a shared function that nobody waits for goes on for long: a further worker takes its worker's place");
    }
}

bool WorkerPool::healthy() const {
    const SteadyTime now = clock_.now();
    return state_.with([&](const State& state) {
        if (state.replaced < spare_.most || state.busy < limits_.workers) return true;
        return !std::all_of(state.running.begin(), state.running.end(),
                            [&](const Job* job) { return overdue(*job, now); });
    });
}

std::chrono::milliseconds WorkerPool::retry_after() const {
    using std::chrono::milliseconds;
    const SteadyTime now = clock_.now();
    const double wait_ns = state_.with([&](const State& state) {
        double running_ns = 0;  // running jobs may take longer than those that ended
        for (const Job* job : state.running) {
            if (job->notes.replaced) continue;
            running_ns += std::chrono::duration<double, std::nano>(now - job->notes.started_at).count();
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
