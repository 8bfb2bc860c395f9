#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "tasks/worker_pool.hpp"

namespace shared_tensor::tasks {

/// Jobs in the order in which they came.
using JobMap = std::map<std::uint64_t, std::shared_ptr<Job>>;

class Group {
public:
    explicit Group(std::size_t limit_of_runs) : limit(limit_of_runs) {}
    std::size_t size_of(const Claim& claim) const { return std::min(claim.places, limit); }
    bool has_room(const Claim& claim) const { return size_of(claim) <= limit - taken; }

    // Guarded by the lock of the pool that uses it.
    const std::size_t limit;
    std::size_t taken = 0;  ///< by jobs that run, are about to, or wait impatiently
    JobMap parked;          ///< jobs that wait for room here: there is none for the first of them
};

/// The order in which waiting jobs run, without threads or locks: one thread at a time.
///
/// A job is ready once it has taken its place in all of its groups at once; until then it is parked at one that is
/// full. So no step looks at jobs that cannot go on. A job that was passed over often, because its groups never had
/// room at the same time, becomes impatient: it keeps the places that it can get, in one global order of groups (so two
/// impatient jobs cannot wait for each other), and thus starts after all.
class JobQueue {
public:
    static constexpr std::size_t kPatience = 16;
    explicit JobQueue(std::size_t patience = kPatience) : patience_(patience) {}

    /// Strong guarantee when memory runs out; nothing else here allocates.
    void push(std::shared_ptr<Job> job);
    /// The earliest ready job, null without one. Its places in its groups are taken until release().
    std::shared_ptr<Job> pop() noexcept;
    /// Takes a waiting job out; false when it does not wait.
    bool withdraw(Job& job) noexcept;

    static bool has_room(const Groups& groups);
    static void take(const Groups& groups);
    /// Gives back one place in each group and makes those ready that waited for it, earliest first.
    void release(const Groups& groups) noexcept { release(groups, groups.size()); }

    bool any_ready() const { return !ready_.empty(); }
    std::size_t size() const { return ready_.size() + parked_; }

private:
    static Group* acquire(Job& job, std::size_t patience) noexcept;
    void wake(const Groups& groups, std::size_t count) noexcept;
    void settle(JobMap::node_type node) noexcept;
    void release(const Groups& groups, std::size_t count) noexcept;

    const std::size_t patience_;
    JobMap ready_;
    std::size_t parked_ = 0;
    std::uint64_t next_ = 1;
};

}  // namespace shared_tensor::tasks
