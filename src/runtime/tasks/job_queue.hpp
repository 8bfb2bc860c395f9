#pragma once

#include <algorithm>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/concurrency/clock.hpp"

namespace shared_tensor::tasks {

/// Limits how many jobs of the group run at once (a function's concurrency, the share of tasks, the state of a
/// session). Shared by its jobs and its maker. Its counter is guarded by one pool: use it with that pool only.
class Group;
/// `limit` is at least 1, else throws std::logic_error. `of_workers`: the group is a share of the workers, so a job
/// gives its places back when its worker gets a replacement, and not when it ends.
std::shared_ptr<Group> make_group(std::size_t limit, bool of_workers = false);

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

/// The place of a job in the order of jobs, from 1 on. Each owner has a job in each round, so an owner with many
/// waiting jobs delays those of others by one each.
struct Turn {
    std::uint64_t round = 0;
    std::uint64_t sequence = 0;  ///< the order of submission
    auto operator<=>(const Turn&) const = default;
};

/// A piece of work, submitted once. `run` must not throw; exceptions are logged and dropped. The worker destroys `run`
/// right after it ran, so it may own the call that owns the job.
struct Job {
    Groups groups;  ///< the pool sorts them
    std::function<void()> run;
    std::string owner{};   ///< in whose turn it runs
    bool is_task = false;  ///< leaves WorkerLimits::kept_for_calls() places in the queue free

    /// Used by the pool, guarded by its lock.
    struct Notes {
        Turn turn{};  ///< 0 before submit()
        bool waits = false;
        Group* parked_at = nullptr;  ///< the full group that it waits for; null if it is ready
        std::size_t held = 0;        ///< its places in the first `held` groups are taken
        std::size_t passed_over = 0;
        std::optional<SteadyTime> abandoned_at;
        SteadyTime started_at{};
        bool replaced = false;               ///< it runs, and its worker has a replacement
        std::shared_ptr<Job> next_assigned;  ///< of the jobs that were given to workers in one step
    } notes{};
};

/// Jobs in the order of their turns.
using JobMap = std::map<Turn, std::shared_ptr<Job>>;

class Group {
public:
    Group(std::size_t limit_of_runs, bool is_of_workers) : limit(limit_of_runs), of_workers(is_of_workers) {}
    std::size_t size_of(const Claim& claim) const { return std::min(claim.places, limit); }
    bool has_room(const Claim& claim) const { return size_of(claim) <= limit - taken; }

    const std::size_t limit;
    const bool of_workers;
    // Guarded by the lock of the pool that uses it.
    std::size_t taken = 0;  ///< places of jobs that run, are ready, or are impatient
    JobMap parked;          ///< jobs waiting for a place here; there is no room for the first
};

/// The order in which waiting jobs run: the order of submission, except that owners take turns. Has no threads or
/// locks: not thread-safe.
///
/// A job is ready when it has taken its places in all of its groups at once; until then it is parked at a group that is
/// full. So no step looks at jobs that cannot go on. A job that was passed over many times, because its groups never
/// had room at the same time, becomes impatient: it keeps each place that it can get, so it starts in the end. All
/// impatient jobs take places in one global order of groups, so they cannot deadlock.
class JobQueue {
public:
    static constexpr std::size_t kPatience = 16;
    explicit JobQueue(std::size_t patience = kPatience) : patience_(patience) {}

    /// Strong exception guarantee when memory runs out. No other method allocates.
    void push(std::shared_ptr<Job> job);
    /// The first ready job, or null. Its places in its groups stay taken until release().
    std::shared_ptr<Job> pop() noexcept;
    /// Removes a waiting job; false if it does not wait.
    bool withdraw(Job& job) noexcept;

    /// Sorts the groups in one order for all jobs, without duplicates: so impatient jobs cannot deadlock.
    static void arrange(Groups& groups);
    /// `groups` is arranged, here and below.
    static bool has_room(const Groups& groups);
    static void take(const Groups& groups);
    /// Frees the job's places in its groups, and makes jobs that waited for them ready, earliest first.
    void release(const Groups& groups) noexcept { release(groups, groups.size()); }

    bool any_ready() const { return !ready_.empty(); }
    std::size_t size() const { return ready_.size() + parked_; }
    bool has_waiting(const std::string& owner) const;

private:
    struct Owner {
        std::uint64_t last_round = 0;  ///< of its waiting jobs
        std::size_t waiting = 0;
    };
    void left(const Job& job) noexcept;
    static Group* acquire(Job& job, std::size_t patience) noexcept;
    void wake(const Groups& groups, std::size_t count) noexcept;
    void settle(JobMap::node_type node) noexcept;
    void release(const Groups& groups, std::size_t count) noexcept;

    const std::size_t patience_;
    JobMap ready_;
    std::size_t parked_ = 0;
    std::uint64_t round_ = 0;  ///< of the job that was popped last
    std::uint64_t next_ = 1;
    std::unordered_map<std::string, Owner> owners_;
};

}  // namespace shared_tensor::tasks
