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

/// A pool whose work waits to be released.
struct BusyPool {
    explicit BusyPool(std::size_t most)
        : pool("st-test", most, milliseconds(20), worker([this] {
                   entered.set();
                   release.wait();
               })) {}
    void submit(int count) {
        for (int i = 0; i < count; ++i)
            REQUIRE(pool.submit(some_work()));
    }
    Event entered, release;
    Pool pool;
};

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

TEST_CASE("the pool grows while all threads are busy and shrinks when they idle, with their stacks", "[http]") {
    BusyPool busy(100);
    const int before = thread_stacks();
    busy.submit(50);
    REQUIRE(busy.entered.wait(50));
    CHECK(busy.pool.threads() == 50);
    REQUIRE(thread_stacks() >= before + 40);
    busy.release.set();
    CHECK(eventually([&] { return busy.pool.threads() == 0; }));
    CHECK(eventually([&] { return thread_stacks() <= before + 10; }));  // glibc keeps a few for the next threads
    busy.submit(1);
    CHECK(busy.entered.wait(51));
}

TEST_CASE("work beyond the most threads waits for one to become free, or is dropped by the end of the pool", "[http]") {
    BusyPool busy(2);
    busy.submit(6);
    REQUIRE(busy.entered.wait(2));
    CHECK(busy.pool.threads() == 2);
    busy.release.set();
    REQUIRE(busy.entered.wait(6));

    BusyPool ends(1);
    ends.submit(1);
    auto waiting = some_work();
    ends.pool.submit(waiting);
    REQUIRE(ends.entered.wait());
    std::jthread stopper([&] { ends.pool.stop(); });
    CHECK(eventually([&] { return waiting.use_count() == 1; }));
    ends.release.set();
    stopper.join();
    CHECK(ends.entered.count() == 1);
    CHECK_FALSE(ends.pool.submit(some_work()));
}

TEST_CASE("long work may hold threads as long as the reserve is left for short work", "[http]") {
    Event done;
    Pool pool("st-test", 32, milliseconds(20), worker([&] { done.set(); }));
    pool.start(2);
    CHECK(pool.threads() == 2);
    std::atomic<int> rejected{0};
    {
        std::barrier together(30);
        std::vector<std::jthread> works;
        for (int i = 0; i < 30; ++i) {  // at once, and each takes a further thread
            works.emplace_back([&] {
                together.arrive_and_wait();
                rejected += pool.hold() ? 0 : 1;
            });
        }
    }
    CHECK(rejected == 0);
    CHECK(pool.threads() == 32);
    CHECK_FALSE(pool.hold());
    pool.release_hold();
    CHECK(pool.hold());
    pool.submit(some_work());
    CHECK(done.wait());
    for (int i = 0; i < 30; ++i)
        pool.release_hold();
    pool.submit(some_work());
    CHECK(eventually([&] { return pool.threads() == 2; }));  // the reserve stays
}

}  // namespace
}  // namespace shared_tensor::test
