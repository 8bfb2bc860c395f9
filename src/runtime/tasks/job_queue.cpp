#include "runtime/tasks/job_queue.hpp"

#include <algorithm>
#include <functional>
#include <utility>

#include "base/bytes/check.hpp"

namespace shared_tensor::tasks {

namespace {

const Claim& claim_on(const Group& group, const Job& job) {
    return *std::find_if(job.groups.begin(), job.groups.end(), [&](const Claim& one) { return one.get() == &group; });
}

/// The group has room for the job, and no earlier job waits for it.
bool is_open(const Claim& claim, const Job& job) {
    const JobMap& parked = claim->parked;
    return claim->has_room(claim) && (parked.empty() || parked.begin()->first > job.notes.turn);
}

/// Of the first `count` groups: the group that has room for its first parked job, and whose first parked job is the
/// earliest. Nullptr if no parked job can go on.
Group* first_to_wake(const Groups& groups, std::size_t count) {
    Group* first = nullptr;
    for (std::size_t i = 0; i < count; ++i) {
        Group* group = groups[i].get();
        if (group->parked.empty()) continue;
        const auto& [turn, job] = *group->parked.begin();
        if (!group->has_room(claim_on(*group, *job))) continue;
        if (first == nullptr || turn < first->parked.begin()->first) first = group;
    }
    return first;
}

}  // namespace

std::shared_ptr<Group> make_group(std::size_t limit, bool of_workers) {
    SHARED_TENSOR_CHECK(limit > 0, "a group without room would never let a job run");
    return std::make_shared<Group>(limit, of_workers);
}

void JobQueue::arrange(Groups& groups) {
    std::sort(groups.begin(), groups.end(), [](const Claim& a, const Claim& b) {
        return a.get() != b.get() ? std::less<>()(a.get(), b.get()) : a.places > b.places;
    });
    const auto same = [](const Claim& a, const Claim& b) { return a.get() == b.get(); };
    groups.erase(std::unique(groups.begin(), groups.end(), same), groups.end());
}

void JobQueue::push(std::shared_ptr<Job> job) {
    SHARED_TENSOR_CHECK(job->notes.turn.sequence == 0, "a job is submitted once");
    arrange(job->groups);
    Owner& owner = owners_[job->owner];
    const Turn turn{std::max(round_, owner.last_round) + 1, next_};
    JobMap fresh;
    Job& notes_of = *job;
    fresh.emplace(turn, std::move(job));
    ++next_;
    ++owner.waiting;
    owner.last_round = turn.round;
    notes_of.notes.turn = turn;
    settle(fresh.extract(fresh.begin()));
}

bool JobQueue::has_waiting(const std::string& owner) const {
    const auto found = owners_.find(owner);
    return found != owners_.end() && found->second.waiting > 0;
}

/// The job no longer waits. A few owners are kept, so that a job that need not wait costs no allocation.
void JobQueue::left(const Job& job) noexcept {
    constexpr std::size_t kKeptOwners = 16;
    const auto found = owners_.find(job.owner);
    if (--found->second.waiting > 0) return;
    found->second.last_round = 0;
    if (owners_.size() > kKeptOwners) owners_.erase(found);
}

std::shared_ptr<Job> JobQueue::pop() noexcept {
    if (ready_.empty()) return nullptr;
    auto job = std::move(ready_.begin()->second);
    ready_.erase(ready_.begin());
    job->notes.waits = false;
    round_ = std::max(round_, job->notes.turn.round);
    left(*job);
    return job;
}

bool JobQueue::withdraw(Job& job) noexcept {
    if (!job.notes.waits) return false;
    job.notes.waits = false;
    left(job);
    Group* parked_at = std::exchange(job.notes.parked_at, nullptr);
    if (parked_at != nullptr) {
        parked_at->parked.erase(job.notes.turn);
        --parked_;
    } else {
        ready_.erase(job.notes.turn);
    }
    release(job.groups, std::exchange(job.notes.held, 0));
    if (parked_at != nullptr) wake(job.groups, job.groups.size());  // jobs parked after this one may need fewer places
    return true;
}

bool JobQueue::has_room(const Groups& groups) {
    return std::all_of(groups.begin(), groups.end(),
                       [](const Claim& claim) { return claim->parked.empty() && claim->has_room(claim); });
}

void JobQueue::take(const Groups& groups) {
    for (const Claim& claim : groups)
        claim->taken += claim->size_of(claim);
}

void JobQueue::release(const Groups& groups, std::size_t count) noexcept {
    for (std::size_t i = 0; i < count; ++i)
        groups[i]->taken -= groups[i]->size_of(groups[i]);
    wake(groups, count);
}

void JobQueue::wake(const Groups& groups, std::size_t count) noexcept {
    while (Group* group = first_to_wake(groups, count)) {
        auto node = group->parked.extract(group->parked.begin());
        --parked_;
        ++node.mapped()->notes.passed_over;
        settle(std::move(node));
    }
}

/// Takes the job's places. If a group is full, returns it: the job has to wait for it.
Group* JobQueue::acquire(Job& job, std::size_t patience) noexcept {
    if (job.notes.passed_over < patience) {
        for (const Claim& claim : job.groups) {
            if (!is_open(claim, job)) return claim.get();
        }
    }
    for (std::size_t& held = job.notes.held; held < job.groups.size(); ++held) {
        const Claim& claim = job.groups[held];
        if (!is_open(claim, job)) return claim.get();
        claim->taken += claim->size_of(claim);
    }
    return nullptr;
}

void JobQueue::settle(JobMap::node_type node) noexcept {
    Job& job = *node.mapped();
    job.notes.waits = true;
    job.notes.parked_at = acquire(job, patience_);
    if (job.notes.parked_at == nullptr) {
        ready_.insert(ready_.end(), std::move(node));
    } else {
        JobMap& parked = job.notes.parked_at->parked;
        parked.insert(parked.end(), std::move(node));
        ++parked_;
    }
}

}  // namespace shared_tensor::tasks
