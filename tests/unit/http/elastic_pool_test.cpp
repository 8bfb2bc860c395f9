#include "util/elastic_pool.hpp"

#include <catch2/catch_test_macros.hpp>

#include "http/connection_server.hpp"
#include "test_server.hpp"

namespace shared_tensor::test {
namespace {

using http::Connection;
using Pool = http::ConnectionPool;
using std::chrono::milliseconds;

std::shared_ptr<Connection> some_work() {
    return std::make_shared<Connection>(1, std::make_unique<http::SocketWire>(UniqueFd()), http::Peer{}, false);
}

class Calls final : public Pool::Worker {
public:
    explicit Calls(std::function<void()> act) : act_(std::move(act)) {}
    void serve(std::shared_ptr<Connection>) override { act_(); }

private:
    std::function<void()> act_;
};

Pool::MakeWorker worker(std::function<void()> act) {
    return [act] { return std::make_unique<Calls>(act); };
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

}  // namespace
}  // namespace shared_tensor::test
