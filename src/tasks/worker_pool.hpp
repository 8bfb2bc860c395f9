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

#include "util/clock.hpp"

namespace shared_tensor::tasks {

/// Bounds how many jobs that carry it run at once (a function's concurrency, the share of tasks, one session's state).
/// Shared by the jobs and whoever made it; its count belongs to the pool, and to one pool only.
class Group;
/// `limit` is at least 1 (else std::logic_error).
std::shared_ptr<Group> make_group(std::size_t limit);

/// What a job takes of a group while it runs: one place, or all of them.
struct Claim {
    static constexpr std::size_t kAll = static_cast<std::size_t>(-1);
    Claim(std::shared_ptr<Group> of, std::size_t so_many = 1)  // NOLINT(google-explicit-constructor): mostly one place
        : group(std::move(of)), places(so_many) {}
    Group* get() const { return group.get(); }
    Group* operator->() const { return group.get(); }

    std::shared_ptr<Group> group;
    std::size_t places;  ///< more than there are: all
};
using Groups = std::vector<Claim>;

/// One piece of work, submitted once. `run` must not throw (what it throws is logged and dropped); it is destroyed on
/// the worker right after it ran, so it may own the call that owns the job.
struct Job {
    Groups groups;  ///< the pool sorts them
    std::function<void()> run;
    bool is_task = false;  ///< leaves WorkerLimits::kept_for_calls() places in the queue free

    /// The pool's own, guarded by its lock.
    struct Notes {
        std::uint64_t sequence = 0;  ///< 0 before submit()
        bool waits = false;
        Group* parked_at = nullptr;  ///< the full group that it waits for, null when it could run
        std::size_t held = 0;        ///< places taken, of the first so many groups
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
    std::size_t workers = 0;  ///< as configured; replacements and those they replace come on top
    std::size_t busy = 0;     ///< of these: run a job, or their place is taken by a Place
    std::size_t queued = 0;
    std::size_t replaced = 0;    ///< abandoned jobs that go on beside their replacement
    std::uint64_t finished = 0;  ///< jobs and Places
    std::uint64_t refused = 0;   ///< submit() that said full
};

/// A fixed pool of workers behind a bounded queue.
///
/// A job beyond a group's limit waits in the queue, never in a worker. Of the jobs whose groups have room the earliest
/// starts first: waiting jobs of one group keep their order (one that wants all of its places is not overtaken by those
/// that want one), and a blocked group holds up no other job. A job that was
/// passed over 16 times because its groups never had room at once is served before later ones. The worker that became
/// idle last gets the next job. Thread safety: all methods from any thread.
class WorkerPool {
public:
    explicit WorkerPool(WorkerLimits limits, const Clock& clock = real_clock(), SpareWorkers spare = {});
    WorkerPool(const WorkerPool&) = delete;
    WorkerPool& operator=(const WorkerPool&) = delete;
    /// Stops: waiting jobs are dropped without a run, running ones waited for. Places are given back before, and no
    /// other thread is inside a method.
    ~WorkerPool();

    /// Full only when the job would have to wait and the queue is at its limit, for a task without the places that are
    /// kept for calls. A rejected job may be submitted again.
    enum class Submitted { accepted, full, stopping };
    Submitted submit(std::shared_ptr<Job> job);

    /// Takes a job out of the queue; false when it runs already or is done.
    bool withdraw(const std::shared_ptr<Job>& job);

    /// A worker's place for the calling thread to run something itself; given back when it is destroyed, on any thread.
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
    /// Nothing unless a worker is free, nothing waits, and no group (each given once) is at its limit.
    std::optional<Place> try_enter(const Groups& groups);
    /// Room in the groups only, for a thread that waits more than it works: workers are not asked for. Nothing when one
    /// is at its limit.
    std::optional<Place> try_hold(const Groups& groups);

    /// Nobody waits for this running job any more: once it has gone on for SpareWorkers::after, tend() replaces its
    /// worker. Its places in its groups stay taken until it really ends; then the surplus worker leaves.
    void abandon(const std::shared_ptr<Job>& job);
    /// Housekeeping, about once a second, by one thread.
    void tend();
    /// False when all spare workers are in use and every worker is abandoned.
    bool healthy() const;

    /// How long a caller who was refused should wait: from the mean run time and the queue's length, 1 ms to 30 s.
    std::chrono::milliseconds retry_after() const;

    /// Accepts no more; waits until the running and queued jobs are done (abandoned ones too) or the deadline, on the
    /// machine's steady clock, is past (false).
    bool drain(SteadyTime deadline);

    PoolStats stats() const;

private:
    class Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace shared_tensor::tasks
