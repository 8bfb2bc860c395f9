#include "client/async/work_queue.hpp"

#include <catch2/catch_test_macros.hpp>
#include <functional>

#include "support/event.hpp"

using namespace shared_tensor::client;
using shared_tensor::test::Event;

namespace {

class TestJob final : public Job {
public:
    explicit TestJob(std::function<void()> work) : work_(std::move(work)) {}
    void run() override { work_(); }
    void abandon(std::exception_ptr) override {}

private:
    std::function<void()> work_;
};

std::unique_ptr<Job> job(std::function<void()> work = [] {}) { return std::make_unique<TestJob>(std::move(work)); }

}  // namespace

TEST_CASE("Every job runs once", "[client]") {
    Event ran;
    WorkQueue queue(3);
    for (int i = 0; i < 100; ++i)
        CHECK(queue.push(job([&] { ran.set(); })) == nullptr);
    CHECK(ran.wait(100));
    queue.close();
    CHECK(queue.join().empty());
    CHECK(ran.count() == 100);
}

TEST_CASE("A job beyond the limit is handed back", "[client]") {
    Event began, release;
    WorkQueue queue(1);
    queue.push(job([&] {
        began.set();
        release.wait();
    }));
    REQUIRE(began.wait());
    CHECK(queue.push(job(), 2) == nullptr);
    CHECK(queue.push(job(), 2) == nullptr);
    CHECK(queue.push(job(), 2) != nullptr);
    CHECK(queue.push(job()) == nullptr);
    release.set();
}

TEST_CASE("After close nothing begins, and join returns what waited", "[client]") {
    Event began, release, late;
    WorkQueue queue(1);
    queue.push(job([&] {
        began.set();
        release.wait();
    }));
    queue.push(job([&] { late.set(); }));
    REQUIRE(began.wait());
    queue.close();
    CHECK(queue.push(job()) != nullptr);
    release.set();
    CHECK(queue.join().size() == 1);
    CHECK(late.count() == 0);
}
