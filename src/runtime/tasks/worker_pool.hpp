#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <shared_tensor/limits.hpp>

#include "base/concurrency/clock.hpp"

namespace shared_tensor::tasks {

/// Limits how many jobs of the group run at once (a function's concurrency, the share of tasks, the state of a
/// session). Shared by its jobs and its maker. Its counter is guarded by one pool: use it with that pool only.
class Group;
/// `limit` is at least 1, else throws std::logic_error.
std::shared_ptr<Group> make_group(std::size_t limit);

/// How many places of a group a job takes while it runs: usually one, or all.
struct Claim {
    static constexpr std::size_t kAll = static_cast<std::size_t>(-1);
    Claim(std::shared_ptr<Group> of, std::size_t so_many = 1)  // NOLINT(google-explicit-constructor): mostly one place
        : group(std::move(of)), places(so_many) {}
    Group* get() const { return group.get(); }
    Group* operator->() const { return group.get(); }

    std::shared_ptr<Group> group;
    std::size_t places;  ///< if there are fewer places, all of them
};
using Groups = std::vector<Claim>;

/// A piece of work, submitted once. `run` must not throw; exceptions are logged and dropped. The worker destroys `run`
/// right after it ran, so it may own the call that owns the job.
struct Job {
    Groups groups;  ///< the pool sorts them
    std::function<void()> run;
    bool is_task = false;  ///< leaves WorkerLimits::kept_for_calls() places in the queue free

    /// Used by the pool, guarded by its lock.
    struct Notes {
        std::uint64_t sequence = 0;  ///< 0 before submit()
        bool waits = false;
        Group* parked_at = nullptr;  ///< the full group that it waits for; null if it is ready
        std::size_t held = 0;        ///< its places in the first `held` groups are taken
        std::size_t passed_over = 0;
        std::optional<SteadyTime> abandoned_at;
    } notes{};
};

using shared_tensor::WorkerLimits;

/// Replacements for workers whose job was abandoned and goes on.
struct SpareWorkers {
    std::size_t most = 16;  ///< hung functions are bugs: a server with more of them is better restarted
    std::chrono::milliseconds after{5'000};  ///< most abandoned jobs notice within that time that they were cancelled
};

struct PoolStats {
    std::size_t workers = 0;  ///< as configured, without replacements and the workers they replace
    std::size_t busy = 0;     ///< of `workers`: those that run a job or are taken by a Place
    std::size_t queued = 0;
    std::size_t replaced = 0;    ///< abandoned jobs that still run, with a replacement for their worker
    std::uint64_t finished = 0;  ///< jobs and Places
    std::uint64_t rejected = 0;  ///< calls of submit() that returned `full`
};

/// A fixed number of workers and a bounded queue.
///
/// A job whose group is full waits in the queue and never blocks a worker. The earliest job whose groups have room
/// starts first. Waiting jobs of one group keep their order, so a job that needs all places of a group is not overtaken
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

    /// `full` only if the job would have to wait and the queue is full; for a task, the places kept for calls count as
    /// used. A rejected job may be submitted again.
    enum class Submitted { accepted, full, stopping };
    Submitted submit(std::shared_ptr<Job> job);

    /// Removes a job from the queue; false if it already runs or has ended.
    bool withdraw(const std::shared_ptr<Job>& job);

    /// A worker's place, for work on the calling thread. The destructor frees it, on any thread.
    class Place {
    public:
        Place(Place&& other) noexcept;
        Place& operator=(Place&&) = delete;
        ~Place();

    private:
        friend class WorkerPool;
        Place(WorkerPool& pool, Groups groups, bool of_worker);
        WorkerPool* pool_;
        Groups groups_;
        bool of_worker_;
    };
    /// Nullopt unless a worker is free and all groups have room, with no job waiting for one of them. Give each group
    /// once.
    std::optional<Place> try_enter(const Groups& groups);
    /// Takes places in the groups, but no worker: for a thread that mostly waits. Nullopt if a group has no room.
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
    class Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace shared_tensor::tasks
