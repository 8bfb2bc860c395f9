#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "util/clock.hpp"

namespace shared_tensor::tasks {

/// Bounds how many jobs that carry it run at once (a function's concurrency, the share of tasks, one session's state).
/// Shared by the jobs and whoever made it; its count belongs to the pool.
class Group;
std::shared_ptr<Group> make_group(std::size_t limit);

/// One piece of work. `run` must not throw.
struct Job {
    std::vector<std::shared_ptr<Group>> groups;
    std::function<void()> run;
};

struct PoolOptions {
    std::size_t workers = 4;
    std::size_t queue_limit = 1024;     ///< jobs that wait, blocked ones included
    std::size_t spare_workers = 16;     ///< replacements for abandoned workers at most
    std::chrono::milliseconds abandoned_after{5'000};
};

struct PoolStats {
    std::size_t workers = 0, busy = 0, queued = 0, replaced = 0;
    std::uint64_t finished = 0, refused = 0;
};

/// A fixed pool of workers behind a bounded queue.
///
/// A job beyond a group's limit waits in the queue, never in a worker; waiting jobs of one group keep their order, and a
/// blocked group holds up no other job. Thread safety: all methods from any thread.
class WorkerPool {
public:
    explicit WorkerPool(PoolOptions options, const Clock& clock = real_clock());
    ~WorkerPool();   ///< stops; waits for running jobs

    enum class Submitted { accepted, full, stopping };
    Submitted submit(std::shared_ptr<Job> job);

    /// Takes a job out of the queue; false when it runs already or is done.
    bool withdraw(const std::shared_ptr<Job>& job);

    /// A worker's place for the calling thread to run something itself; given back when it is destroyed.
    class Place {
    public:
        Place(Place&&) noexcept;
        ~Place();
    private:
        friend class WorkerPool;
        Place(WorkerPool& pool, std::vector<std::shared_ptr<Group>> groups);
        WorkerPool* pool_;
        std::vector<std::shared_ptr<Group>> groups_;
    };
    /// Nothing unless a worker is free, nothing waits, and no group is at its limit.
    std::optional<Place> try_enter(const std::vector<std::shared_ptr<Group>>& groups);

    /// Nobody waits for this running job any more: once it has gone on for `abandoned_after`, tend() replaces its worker.
    void abandon(const std::shared_ptr<Job>& job);
    /// Housekeeping, about once a second.
    void tend();
    /// False when all spare workers are in use and every worker is abandoned.
    bool healthy() const;

    /// How long a caller who was refused should wait: from the mean run time and the queue's length, 1 ms to 30 s.
    std::chrono::milliseconds retry_after() const;

    /// Accepts no more; waits until the running and queued jobs are done or the deadline is past (false).
    bool drain(SteadyTime deadline);

    PoolStats stats() const;

private:
    class Impl;
    std::shared_ptr<Impl> impl_;
};

}  // namespace shared_tensor::tasks
