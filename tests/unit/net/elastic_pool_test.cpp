#include "base/concurrency/elastic_pool.hpp"

#include <pthread.h>

#include <atomic>
#include <barrier>
#include <catch2/catch_test_macros.hpp>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "test_server.hpp"

namespace shared_tensor::test {
namespace {

using Pool = ElasticPool<std::shared_ptr<int>>;
using std::chrono::milliseconds;

std::shared_ptr<int> some_work() { return std::make_shared<int>(1); }

class Calls final : public Pool::Worker {
public:
    explicit Calls(std::function<void()> act) : act_(std::move(act)) {}
    void serve(std::shared_ptr<int>) override { act_(); }

private:
    std::function<void()> act_;
};

Pool::MakeWorker worker(std::function<void()> act) {
    return [act] { return std::make_unique<Calls>(act); };
}

/// Mappings as large as the stack of a thread.
int thread_stacks() {
    pthread_attr_t attributes;
    ::pthread_attr_init(&attributes);
    std::size_t size = 0;
    ::pthread_attr_getstacksize(&attributes, &size);
    ::pthread_attr_destroy(&attributes);
    int found = 0;
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);) {
        const std::size_t begin = std::stoull(line, nullptr, 16);
        const std::size_t end = std::stoull(line.substr(line.find('-') + 1), nullptr, 16);
        if (end - begin == size) ++found;
    }
    return found;
}

TEST_CASE("the pool grows while all threads are busy and shrinks when they idle", "[http]") {
    Event entered, release;
    Pool pool("st-test", 100, milliseconds(20), worker([&] {
                  entered.set();
                  release.wait();
              }));
    for (int i = 0; i < 10; ++i)
        REQUIRE(pool.submit(some_work()));
    CHECK(entered.wait(10));
    CHECK(pool.threads() == 10);
    release.set();
    CHECK(eventually([&] { return pool.threads() == 0; }));
    CHECK(pool.submit(some_work()));
    CHECK(entered.wait(11));
}

TEST_CASE("threads that ended give their stacks back, without further work", "[http]") {
    Event entered, release;
    Pool pool("st-test", 100, milliseconds(20), worker([&] {
                  entered.set();
                  release.wait();
              }));
    const int before = thread_stacks();
    for (int i = 0; i < 50; ++i)
        REQUIRE(pool.submit(some_work()));
    REQUIRE(entered.wait(50));
    REQUIRE(thread_stacks() >= before + 40);
    release.set();
    CHECK(eventually([&] { return thread_stacks() <= before + 10; }));  // glibc keeps a few for the next threads
}

TEST_CASE("an idle thread is used before a new one is made", "[http]") {
    Event done;
    Pool pool("st-test", 100, std::chrono::seconds(60), worker([&] { done.set(); }));
    for (std::size_t i = 1; i <= 50; ++i) {
        pool.submit(some_work());
        REQUIRE(done.wait(i));
        std::this_thread::sleep_for(milliseconds(1));  // let the thread come back to its seat
    }
    CHECK(pool.threads() <= 5);
}

TEST_CASE("work beyond the most threads waits for one to become free", "[http]") {
    Event entered, release;
    Pool pool("st-test", 2, milliseconds(20), worker([&] {
                  entered.set();
                  release.wait();
              }));
    for (int i = 0; i < 6; ++i)
        pool.submit(some_work());
    CHECK(entered.wait(2));
    CHECK(pool.threads() == 2);
    release.set();
    CHECK(entered.wait(6));
}

TEST_CASE("a stopped pool takes nothing and drops what waited", "[http]") {
    Event entered, release;
    Pool pool("st-test", 1, milliseconds(20), worker([&] {
                  entered.set();
                  release.wait();
              }));
    pool.submit(some_work());
    auto waiting = some_work();
    pool.submit(waiting);
    REQUIRE(entered.wait());
    std::jthread stopper([&] { pool.stop(); });
    CHECK(eventually([&] { return waiting.use_count() == 1; }));
    release.set();
    stopper.join();
    CHECK(entered.count() == 1);
    CHECK_FALSE(pool.submit(some_work()));
}

TEST_CASE("a pool has its reserve of threads from the start, and keeps it", "[http]") {
    Event done;
    Pool pool("st-test", 8, milliseconds(1), worker([&] { done.set(); }));
    pool.start(3);
    CHECK(pool.threads() == 3);
    for (std::size_t i = 1; i <= 20; ++i) {
        pool.submit(some_work());
        REQUIRE(done.wait(i));
    }
    CHECK(eventually([&] { return pool.threads() == 3; }));
}

TEST_CASE("long work may hold threads as long as the reserve is left for short work", "[http]") {
    Pool pool("st-test", 5, std::chrono::seconds(60), worker([] {}));
    pool.start(2);
    for (int i = 0; i < 3; ++i)
        CHECK(pool.hold());  // takes a further thread, to have two beside
    CHECK(pool.threads() == 5);
    CHECK_FALSE(pool.hold());
    pool.release_hold();
    CHECK(pool.hold());
    for (int i = 0; i < 3; ++i)
        pool.release_hold();
}

TEST_CASE("long work that comes at once takes as many threads as it needs", "[http]") {
    Pool pool("st-test", 40, std::chrono::seconds(60), worker([] {}));
    pool.start(2);
    std::atomic<int> rejected{0};
    {
        std::barrier together(30);
        std::vector<std::jthread> works;
        for (int i = 0; i < 30; ++i) {
            works.emplace_back([&] {
                together.arrive_and_wait();
                rejected += pool.hold() ? 0 : 1;
            });
        }
    }
    CHECK(rejected == 0);
    CHECK(pool.threads() == 32);
    for (int i = 0; i < 30; ++i)
        pool.release_hold();
}

TEST_CASE("short work is done while long work holds all threads that it may", "[http]") {
    Event entered, release, done;
    std::atomic<int> rejected{0};
    std::unique_ptr<Pool> pool;
    std::atomic<bool> is_long{true};
    pool = std::make_unique<Pool>("st-test", 6, std::chrono::seconds(60), worker([&] {
                                      if (!is_long.load()) return done.set();
                                      if (!pool->hold()) {
                                          ++rejected;
                                          return entered.set();
                                      }
                                      entered.set();
                                      release.wait();
                                      pool->release_hold();
                                  }));
    pool->start(2);
    for (int i = 0; i < 50; ++i)
        REQUIRE(pool->submit(some_work()));
    REQUIRE(entered.wait(50));
    CHECK(rejected == 46);
    is_long = false;
    pool->submit(some_work());
    CHECK(done.wait());
    release.set();
    pool->stop();
}

}  // namespace
}  // namespace shared_tensor::test
