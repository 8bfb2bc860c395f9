#include "tasks/job_queue.hpp"

#include <algorithm>
#include <functional>
#include <utility>

#include "util/check.hpp"

namespace shared_tensor::tasks {

namespace {

/// One order for all jobs, and each group once: two impatient jobs cannot hold what the other waits for.
void arrange(Groups& groups) {
    std::sort(groups.begin(), groups.end());
    groups.erase(std::unique(groups.begin(), groups.end()), groups.end());
}

/// Of the first `count` groups, the one with room whose first parked job came earliest; nullptr when all are settled.
Group* first_to_wake(const Groups& groups, std::size_t count) {
    Group* first = nullptr;
    for (std::size_t i = 0; i < count; ++i) {
        Group* group = groups[i].get();
        if (!group->has_room() || group->parked.empty()) continue;
        if (first == nullptr || group->parked.begin()->first < first->parked.begin()->first) first = group;
    }
    return first;
}

}  // namespace

std::shared_ptr<Group> make_group(std::size_t limit) {
    SHARED_TENSOR_CHECK(limit > 0, "a group without room would never let a job run");
    return std::make_shared<Group>(limit);
}

void JobQueue::push(std::shared_ptr<Job> job) {
    SHARED_TENSOR_CHECK(job->notes.sequence == 0, "a job is submitted once");
    arrange(job->groups);
    JobMap fresh;
    Job& notes_of = *job;
    fresh.emplace(next_, std::move(job));
    notes_of.notes.sequence = next_++;
    settle(fresh.extract(fresh.begin()));
}

std::shared_ptr<Job> JobQueue::pop() noexcept {
    if (ready_.empty()) return nullptr;
    auto job = std::move(ready_.begin()->second);
    ready_.erase(ready_.begin());
    job->notes.waits = false;
    return job;
}

bool JobQueue::withdraw(Job& job) noexcept {
    if (!job.notes.waits) return false;
    job.notes.waits = false;
    if (Group* group = std::exchange(job.notes.parked_at, nullptr)) {
        group->parked.erase(job.notes.sequence);
        --parked_;
    } else {
        ready_.erase(job.notes.sequence);
    }
    release(job.groups, std::exchange(job.notes.held, 0));
    return true;
}

bool JobQueue::has_room(const Groups& groups) {
    return std::all_of(groups.begin(), groups.end(), [](const auto& group) { return group->has_room(); });
}

void JobQueue::take(const Groups& groups) {
    for (const auto& group : groups)
        ++group->taken;
}

void JobQueue::release(const Groups& groups, std::size_t count) noexcept {
    for (std::size_t i = 0; i < count; ++i)
        --groups[i]->taken;
    while (Group* group = first_to_wake(groups, count)) {
        auto node = group->parked.extract(group->parked.begin());
        --parked_;
        ++node.mapped()->notes.passed_over;
        settle(std::move(node));
    }
}

/// Takes the job's places; or the full group that it has to wait for.
Group* JobQueue::acquire(Job& job) noexcept {
    if (job.notes.passed_over < patience_) {
        for (const auto& group : job.groups) {
            if (!group->has_room()) return group.get();
        }
    }
    for (std::size_t& held = job.notes.held; held < job.groups.size(); ++held) {
        Group& group = *job.groups[held];
        if (!group.has_room()) return &group;
        ++group.taken;
    }
    return nullptr;
}

void JobQueue::settle(JobMap::node_type node) noexcept {
    Job& job = *node.mapped();
    job.notes.waits = true;
    job.notes.parked_at = acquire(job);
    if (job.notes.parked_at == nullptr) {
        ready_.insert(ready_.end(), std::move(node));
    } else {
        JobMap& parked = job.notes.parked_at->parked;
        parked.insert(parked.end(), std::move(node));
        ++parked_;
    }
}

}  // namespace shared_tensor::tasks
