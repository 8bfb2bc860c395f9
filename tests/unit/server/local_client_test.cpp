#include "server/local/local_client.hpp"

#include <array>
#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <functional>
#include <stop_token>
#include <thread>
#include <utility>

#include "support/tensors.hpp"

using namespace shared_tensor;
using namespace shared_tensor::server;
using namespace shared_tensor::test;

namespace {

/// A clock that runs `hook` when it is read for the next time.
class HookedClock final : public Clock {
public:
    SteadyTime now() const override {
        if (const auto run = std::exchange(hook, {})) run();
        return real_clock().now();
    }
    SystemTime wall_time() const override { return real_clock().wall_time(); }
    mutable std::function<void()> hook;
};

/// One client, and what it lives in; nobody is at the other end.
struct Fixture {
    Fixture()
        : pool({.max_idle_bytes = 0}, [this](const std::string& id) { gone += client->forget_lent(id) ? 1 : 0; }) {}

    struct Lent {
        std::string segment, lease;
    };
    /// Lends so many bytes, by default a segment of its own.
    static Lent lend(LocalClient& client, std::size_t bytes = 40'000) {
        auto segment = client.take(bytes);
        const std::string id = segment->segment().id();
        return {id, client.lend(std::move(segment), bytes, tensor::make_handle(zeros(DType::float32, {1}))).lease};
    }
    Lent lend() { return lend(*client); }
    void release(const std::string& lease) { leases.release(lease_holder.client, std::array{lease}); }

    const runtime::LeaseHolder lease_holder{"uid:0", "session"};
    std::atomic<int> gone{0};
    local::SegmentPool pool;
    HookedClock clock;
    runtime::LeaseTable leases{{}, clock};
    Budget offered{100};
    std::shared_ptr<LocalClient> client = make_client({pool, leases, offered});

    std::shared_ptr<LocalClient> make_client(LocalMemory memory) const {
        return std::make_shared<LocalClient>(std::move(memory), lease_holder, std::vector<std::string>(),
                                             [](const char*, const char*, const std::string&) {});
    }
};

}  // namespace

TEST_CASE("A segment is known to the client that it was lent to, until its last result is gone", "[server]") {
    Fixture fixture;
    const auto lent = fixture.lend();
    CHECK(fixture.client->lent_segment(lent.segment).has_value());
    CHECK_FALSE(fixture.client->lent_segment("another").has_value());
    fixture.release(lent.lease);
    CHECK_FALSE(fixture.client->lent_segment(lent.segment).has_value());
    CHECK(fixture.gone == 1);
    local::SegmentPool pool({.max_idle_bytes = 0, .max_together = 64 << 10});  // small results lie together
    const auto client = fixture.make_client({pool, fixture.leases, fixture.offered});
    const auto one = Fixture::lend(*client, 1'000), two = Fixture::lend(*client, 1'000);
    CHECK(one.segment == two.segment);
    CHECK(pool.use().segments == 1);
    fixture.release(two.lease);
    CHECK(client->lent_segment(one.segment).has_value());
    fixture.release(one.lease);
    CHECK_FALSE(client->lent_segment(one.segment).has_value());
}

TEST_CASE("A segment may go while its client asks for it", "[server]") {
    constexpr int kRounds = 3'000;
    Fixture fixture;
    Guarded<std::string> latest;
    std::atomic<int> found{0};
    std::jthread asking([&](const std::stop_token& stop) {
        while (!stop.stop_requested()) {
            const std::string id = latest.with([](const std::string& now) { return now; });
            if (fixture.client->lent_segment(id)) ++found;
        }
    });
    for (int i = 0; i < kRounds || found == 0; ++i) {
        const auto lent = fixture.lend();
        latest.with([&](std::string& now) { now = lent.segment; });
        std::this_thread::yield();
        fixture.release(lent.lease);
    }
    asking.request_stop();
    asking.join();
    CHECK(fixture.gone >= kRounds);
    CHECK(fixture.pool.use().segments == 0);
    CHECK(fixture.leases.stats().leases == 0);
}

TEST_CASE("One principal's segments leave room for those of others", "[server]") {
    Fixture fixture;
    const auto use = std::make_shared<ClientUse>(ClientUse::Limits{
        .requests_per_second = 0, .bytes = 0, .connections = 1, .sessions = 1, .channels = 1, .segments = 2});
    const auto fd = std::make_shared<const UniqueFd>();
    const LocalMemory memory{fixture.pool, fixture.leases, fixture.offered, use};
    const auto one = fixture.make_client(memory), another = fixture.make_client(memory);
    CHECK(one->offer("a", fd, 4096) == LocalClient::Offer::taken);
    CHECK(another->offer("b", fd, 4096) == LocalClient::Offer::taken);
    CHECK(one->offer("c", fd, 4096) == LocalClient::Offer::full);
    CHECK(fixture.client->offer("c", fd, 4096) == LocalClient::Offer::taken);
    another->withdraw("b");
    CHECK(one->offer("c", fd, 4096) == LocalClient::Offer::taken);
}

TEST_CASE("Clients offer so many segments together and no more", "[server]") {
    Fixture fixture;
    const auto fd = std::make_shared<const UniqueFd>();
    for (int i = 0; i < 100; ++i)
        REQUIRE(fixture.client->offer(std::to_string(i), fd, 4096) == LocalClient::Offer::taken);
    CHECK(fixture.client->offer("one more", fd, 4096) == LocalClient::Offer::full);
    CHECK(fixture.client->offer("7", fd, 4096) == LocalClient::Offer::known);
    fixture.client->withdraw("7");
    CHECK(fixture.client->offer("one more", fd, 4096) == LocalClient::Offer::taken);
    fixture.client->ended();
    CHECK(fixture.offered.used() == 0);
}

TEST_CASE("A client that ends while a lease is granted to it keeps no lease", "[server]") {
    Fixture fixture;
    fixture.clock.hook = [&] {  // the table reads the clock before it adds the lease
        fixture.client->ended();
        fixture.leases.client_ended(fixture.lease_holder.client, false);
    };
    CHECK_THROWS_AS(fixture.lend(), tensor::CannotLend);
    CHECK(fixture.leases.stats().leases == 0);
    CHECK(fixture.pool.use().segments == 0);
}
