#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <shared_tensor/limits.hpp>

#include "base/concurrency/clock.hpp"
#include "base/concurrency/elastic_pool.hpp"
#include "base/concurrency/guarded.hpp"
#include "runtime/tasks/job_queue.hpp"

namespace shared_tensor::tasks {

using shared_tensor::WorkerLimits;

/// Replacements for workers whose job was abandoned and goes on.
struct SpareWorkers {
    std::size_t most = 16;  ///< hung functions are bugs: a server with more of them is better restarted
    std::chrono::milliseconds after{5'000};  ///< most abandoned jobs notice within that time that they were cancelled
};

struct PoolStats {
    std::size_t workers = 0;  ///< as configured, without replacements and the workers they replace
    std::size_t busy = 0;     ///< of `workers`: those that run a job
    std::size_t queued = 0;
    std::size_t replaced = 0;  ///< abandoned jobs that still run, with a replacement for their worker
    std::uint64_t finished = 0;
    std::uint64_t rejected = 0;  ///< calls of submit() that returned `full`
};

/// A fixed number of workers and a bounded queue.
///
/// Owners of jobs take turns, and an owner without waiting jobs may add one although the queue is full. A job whose
/// group is full waits in the queue and never blocks a worker. The first job in turn whose groups have room starts
/// first. Waiting jobs of one group keep their order, so a job that needs all places of a group is not overtaken
/// by jobs that need one. A full group does not delay jobs of other groups. A job that was passed over 16 times,
/// because its groups never had room at the same time, is served before later jobs. The worker that became idle last
/// gets the next job. Thread safety: all methods from any thread.
class WorkerPool {
public:
    explicit WorkerPool(WorkerLimits limits, const Clock& clock = real_clock(), SpareWorkers spare = {});
    WorkerPool(const WorkerPool&) = delete;
    WorkerPool& operator=(const WorkerPool&) = delete;
    /// Drops waiting jobs without running them, and waits for running jobs. Destroy all Places before, and let no other
    /// thread be inside a method.
    ~WorkerPool();

    /// `full` only if the job would have to wait, the queue is full, and its owner has a waiting job; for a task, the
    /// places kept for calls count as used. A rejected job may be submitted again.
    enum class Submitted { accepted, full, stopping };
    Submitted submit(std::shared_ptr<Job> job);
    /// Runs the job, which has no groups, on this thread, if a worker would take it at once: it counts as that
    /// worker's. Blocks until it has ended. Otherwise false.
    bool run_here(const std::shared_ptr<Job>& job);

    /// Removes a job from the queue; false if it already runs or has ended.
    bool withdraw(const std::shared_ptr<Job>& job);

    /// Places in groups, held for a thread of another kind, which mostly waits. The destructor frees them, on any
    /// thread.
    class Place {
    public:
        Place(Place&& other) noexcept : pool_(std::exchange(other.pool_, nullptr)), groups_(std::move(other.groups_)) {}
        Place& operator=(Place&&) = delete;
        ~Place();

    private:
        friend class WorkerPool;
        Place(WorkerPool& pool, Groups groups) : pool_(&pool), groups_(std::move(groups)) {}
        WorkerPool* pool_;
        Groups groups_;
    };
    /// Nullopt unless all groups have room, with no job waiting for one of them.
    std::optional<Place> try_hold(const Groups& groups);

    /// Nobody waits for this running job any more: once it has gone on for SpareWorkers::after, sweep() replaces its
    /// worker. Its places in its groups stay taken until it really ends; then the surplus worker leaves.
    void abandon(const std::shared_ptr<Job>& job);
    /// Maintenance: call it about once a second, from one thread.
    void sweep();
    /// False when all spare workers are in use and all workers are abandoned.
    bool healthy() const;

    /// How long a rejected caller should wait: 1 ms to 30 s, from the mean run time, current runs and the queue's
    /// length.
    std::chrono::milliseconds retry_after() const;

    /// Rejects new jobs, then blocks until all running (abandoned ones too) and queued jobs are done. False if the
    /// deadline (real steady clock) passes first.
    bool drain(SteadyTime deadline);

    PoolStats stats() const;

private:
    using JobPointer = std::shared_ptr<Job>;
    class Worker;
    struct State {
        JobQueue queue;
        std::vector<Job*> running;
        std::size_t busy = 0;      // workers that run a job, except the replaced ones; at most limits_.workers
        std::size_t replaced = 0;  // running jobs whose worker has a replacement
        bool draining = false;     // rejects new jobs
        bool closing = false;      // also drops waiting jobs
        double mean_run_ns = 0;
        std::uint64_t finished = 0, rejected = 0;

        bool quiet() const { return running.empty() && (closing || queue.size() == 0); }
        /// Takes the next ready job for a worker, which is busy from now on.
        JobPointer next_job(SteadyTime now);
        void count_as_running(Job& job, SteadyTime now);
        void note_run(SteadyTime::duration run);
        void drop_waiting(std::vector<JobPointer>& dropped);
    };
    template <class Change>
    auto change(Change use);
    JobPointer finished(Job& job);
    void give(JobPointer job);
    JobPointer assign(State& state, SteadyTime now) const;
    Job* to_replace(const State& state, SteadyTime now) const;
    static void release_share_of_workers(State& state, Job& job);
    bool overdue(const Job& job, SteadyTime now) const;

    const WorkerLimits limits_;
    const SpareWorkers spare_;
    const Clock& clock_;
    Guarded<State> state_;
    ElasticPool<JobPointer> threads_;  // last: its threads use all members above
};

}  // namespace shared_tensor::tasks
