#include "runtime/tasks/job_queue.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <limits>
#include <random>
#include <stdexcept>
#include <vector>

using namespace shared_tensor::tasks;

namespace {

std::shared_ptr<Job> job_in(Groups groups) {
    auto job = std::make_shared<Job>();
    job->groups = std::move(groups);
    return job;
}

/// Jobs that wait own the groups that they are parked at, and are owned by them: none may be left at the end.
struct Queue : JobQueue {
    using JobQueue::JobQueue;
    ~Queue() {
        for (const auto& job : pushed)
            withdraw(*job);
    }
    std::vector<std::shared_ptr<Job>> pushed;
};

std::shared_ptr<Job> push(Queue& queue, Groups groups = {}) {
    auto job = job_in(std::move(groups));
    queue.push(job);
    queue.pushed.push_back(job);
    return job;
}

/// The rule in its plainest form: whenever something changes, look at all waiting jobs in order and let each take its
/// places whose groups all have room.
class Model {
public:
    void push(std::shared_ptr<Job> job) {
        waiting_.push_back(std::move(job));
        settle();
    }
    std::shared_ptr<Job> pop() {
        if (ready_.empty()) return nullptr;
        const auto first = std::min_element(ready_.begin(), ready_.end(),
                                            [](const auto& a, const auto& b) { return a->notes.turn < b->notes.turn; });
        auto job = *first;
        ready_.erase(first);
        return job;
    }
    bool withdraw(const std::shared_ptr<Job>& job) {
        if (std::erase(waiting_, job) > 0) return true;
        if (std::erase(ready_, job) == 0) return false;
        release(*job);
        return true;
    }
    void release(const Job& job) {
        for (const auto& group : job.groups)
            --taken_[group.get()];
        settle();
    }
    std::size_t size() const { return waiting_.size() + ready_.size(); }

private:
    void settle() {
        std::erase_if(waiting_, [&](const auto& job) {
            const bool room = std::all_of(job->groups.begin(), job->groups.end(),
                                          [&](const auto& group) { return taken_[group.get()] < group->limit; });
            if (!room) return false;
            for (const auto& group : job->groups)
                ++taken_[group.get()];
            ready_.push_back(job);
            return true;
        });
    }
    std::vector<std::shared_ptr<Job>> waiting_, ready_;
    std::map<Group*, std::size_t> taken_;
};

}  // namespace

TEST_CASE("a job that was passed over many times is served although its groups never have room at once",
          "[tasks][queue]") {
    Queue queue;
    const auto left = make_group(1), right = make_group(1);
    auto in_left = push(queue, {left});
    auto in_right = push(queue, {right});
    queue.pop();
    queue.pop();
    const auto both = push(queue, {left, right});
    bool served = false;
    // Both groups are always taken: before one ends, its next job waits already.
    for (std::size_t round = 0; round < 4 * JobQueue::kPatience && !served; ++round) {
        auto& ending = round % 2 == 0 ? in_left : in_right;
        push(queue, ending->groups);
        queue.release(ending->groups);
        const auto next = queue.pop();
        served = next == both;
        if (next != nullptr && !served) ending = next;
    }
    CHECK(served);
}

TEST_CASE("owners take turns, whoever has more waiting jobs", "[tasks][queue]") {
    Queue queue;
    const auto add = [&](const std::string& owner) {
        auto job = job_in({});
        job->owner = owner;
        queue.push(job);
        queue.pushed.push_back(std::move(job));
    };
    const auto next = [&] { return queue.pop()->owner; };
    for (int i = 0; i < 4; ++i)
        add("bob");
    CHECK(queue.has_waiting("bob"));
    CHECK_FALSE(queue.has_waiting("ann"));
    CHECK(next() == "bob");
    std::string order;
    for (int i = 0; i < 3; ++i) {  // always one, as a client that waits for its answer
        add("ann");
        order += next() + ' ';
        order += next() + ' ';
    }
    CHECK(order == "bob ann bob ann bob ann ");
    add("bob");
    add("bob");
    queue.withdraw(*queue.pushed.back());
    add("ann");
    CHECK(next() == "bob");
    CHECK(next() == "ann");
    CHECK_FALSE(queue.has_waiting("bob"));
    CHECK(queue.size() == 0);
}

TEST_CASE("a job is submitted once, and a group has room", "[tasks][queue]") {
    Queue queue;
    const auto job = push(queue);
    CHECK_THROWS_AS(queue.push(job), std::logic_error);
    CHECK_THROWS_AS(make_group(0), std::logic_error);
}

TEST_CASE("a job that wants all places of a group waits for those that have one, and is not overtaken",
          "[tasks][queue]") {
    Queue queue;
    const auto group = make_group(1000);
    const auto first = push(queue, {group}), second = push(queue, {group});
    const auto all = push(queue, {{group, Claim::kAll}});
    const auto later = push(queue, {group});
    CHECK(queue.pop() == first);
    CHECK(queue.pop() == second);
    CHECK(queue.pop() == nullptr);
    queue.release(first->groups);
    CHECK(queue.pop() == nullptr);
    queue.release(second->groups);
    CHECK(queue.pop() == all);
    CHECK(queue.pop() == nullptr);
    queue.release(all->groups);
    CHECK(queue.pop() == later);
}

TEST_CASE("when a job that wants all places is withdrawn, those behind it go on", "[tasks][queue]") {
    Queue queue;
    const auto group = make_group(2);
    const auto runs = push(queue, {group});
    CHECK(queue.pop() == runs);
    const auto all = push(queue, {{group, Claim::kAll}});
    const auto one = push(queue, {group});
    CHECK(queue.pop() == nullptr);
    CHECK(queue.withdraw(*all));
    CHECK(queue.pop() == one);
}

TEST_CASE("a group that is given twice counts once, with the larger claim", "[tasks][queue]") {
    Queue queue;
    const auto group = make_group(3);
    const auto both = push(queue, {group, {group, Claim::kAll}, group});
    CHECK(queue.pop() == both);
    CHECK(group->taken == 3);
    queue.release(both->groups);
    CHECK(group->taken == 0);
}

TEST_CASE("jobs in random groups come out as the plain rule says", "[tasks][queue]") {
    for (unsigned seed = 0; seed < 200; ++seed) {
        INFO("seed " << seed);
        std::mt19937 random(seed);
        Queue queue(std::numeric_limits<std::size_t>::max());
        Model model;
        const Groups groups = {make_group(1), make_group(1), make_group(2), make_group(3)};
        std::vector<std::shared_ptr<Job>> all, running;
        const auto any_of = [&](auto& list) -> auto& { return list[random() % list.size()]; };
        for (int step = 0; step < 300; ++step) {
            switch (random() % 4) {
                case 0:
                case 1: {
                    Groups chosen;
                    for (const auto& group : groups) {
                        if (random() % 3 == 0) chosen.push_back(group);
                    }
                    all.push_back(job_in(chosen));
                    queue.push(all.back());
                    queue.pushed.push_back(all.back());
                    model.push(all.back());
                    break;
                }
                case 2:
                    if (const auto job = queue.pop()) {
                        REQUIRE(job == model.pop());
                        running.push_back(job);
                    } else {
                        REQUIRE(model.pop() == nullptr);
                    }
                    break;
                default:
                    if (!running.empty() && random() % 4 != 0) {
                        auto& job = any_of(running);
                        queue.release(job->groups);
                        model.release(*job);
                        running.erase(running.begin() + (&job - running.data()));
                    } else if (!all.empty()) {
                        const auto job = any_of(all);
                        REQUIRE(queue.withdraw(*job) == model.withdraw(job));
                    }
            }
            REQUIRE(queue.size() == model.size());
        }
    }
}

TEST_CASE("with impatient jobs in random groups, all jobs come out, no group is over its limit, and no place is lost",
          "[tasks][queue]") {
    for (unsigned seed = 0; seed < 200; ++seed) {
        INFO("seed " << seed);
        std::mt19937 random(seed);
        Queue queue(random() % 3);
        const Groups groups = {make_group(1), make_group(1), make_group(2)};
        std::vector<std::shared_ptr<Job>> running;
        std::size_t came_out = 0, withdrawn = 0;
        constexpr std::size_t kJobs = 200;
        for (std::size_t i = 0; i < kJobs || queue.size() > 0 || !running.empty();) {
            if (i < kJobs && random() % 2 == 0) {
                Groups chosen;
                for (const auto& group : groups) {
                    if (random() % 2 == 0) chosen.emplace_back(group.group, random() % 3 == 0 ? Claim::kAll : 1);
                }
                std::shuffle(chosen.begin(), chosen.end(), random);
                push(queue, chosen);
                ++i;
            }
            if (random() % 8 == 0 && !queue.pushed.empty())
                withdrawn += queue.withdraw(*queue.pushed[random() % queue.pushed.size()]) ? 1 : 0;
            if (auto job = queue.pop()) {
                ++came_out;
                running.push_back(std::move(job));
            }
            for (const auto& group : groups)
                REQUIRE(group->taken <= group->limit);
            if (!running.empty() && random() % 2 == 0) {
                const auto ended = running.begin() + static_cast<std::ptrdiff_t>(random() % running.size());
                queue.release((*ended)->groups);
                running.erase(ended);
            }
            REQUIRE((queue.size() == 0 || queue.any_ready() || !running.empty()));  // else: waiting for ever
        }
        CHECK(came_out + withdrawn == kJobs);
        for (const auto& group : groups)
            CHECK(group->taken == 0);
    }
}
