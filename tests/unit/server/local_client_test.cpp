#include "server/local/local_client.hpp"

#include <array>
#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <functional>
#include <stop_token>
#include <thread>
#include <utility>

#include "base/concurrency/background.hpp"
#include "support/daemon.hpp"
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
    Fixture() : pool({.max_idle_bytes = 0}, [this](const std::string& id) { client->segment_gone(id); }) {}

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
    std::atomic<int> gone{0};  ///< times that a client was told of a segment
    local::SegmentPool pool;
    HookedClock clock;
    runtime::LeaseTable leases{{}, clock};
    Budget offered{100};
    std::shared_ptr<LocalClient> client = make_client({pool, leases, offered});

    std::shared_ptr<LocalClient> make_client(LocalMemory memory) {
        return std::make_shared<LocalClient>(std::move(memory), lease_holder, std::vector<std::string>(),
                                             [this](const char* method, const char*, const std::string&) {
                                                 if (method == std::string_view("segment.gone")) ++gone;
                                             });
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
    const auto use = std::make_shared<ClientUse>(ClientUse::Limits{.requests_per_second = 0,
                                                                   .bytes = 0,
                                                                   .connections = 1,
                                                                   .sessions = 1,
                                                                   .channels = 1,
                                                                   .segments = 2,
                                                                   .streams = 1});
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

namespace {

constexpr std::size_t kBytes = 64 << 10;

bool anyone(const local::ReceivedMemory&) { return true; }

/// A client that has lent the segment "a" to the server, and what it is told: "method segment".
struct Lender {
    Lender() { offer(); }
    void offer() { REQUIRE(client->offer("a", segment.descriptor(), kBytes) == LocalClient::Offer::taken); }
    std::optional<local::SegmentPlace> pass_on() { return local::find_received(memory.data, kBytes, &anyone); }
    bool is_told(const std::vector<std::string>& all) {
        return eventually([&] { return told.with([&](const auto& now) { return now == all; }); });
    }

    const local::Segment segment{kBytes};
    Guarded<std::vector<std::string>> told;
    local::SegmentPool pool;
    runtime::LeaseTable leases;
    Budget offered{100};
    const std::shared_ptr<LocalClient> client = std::make_shared<LocalClient>(
        LocalMemory{pool, leases, offered}, runtime::LeaseHolder{"uid:1", "session"}, std::vector<std::string>(),
        [this](const char* method, const char*, const std::string& id) {
            told.with([&](auto& all) { all.push_back(std::string(method) + ' ' + id); });
        });
    tensor::ShmPeer::Borrowed memory;
};

struct Listener final : local::SegmentListener {
    void segment_gone(const std::string&) override { ++gone; }
    std::atomic<int> gone{0};
};

/// Memory that this process received for a principal.
class Received final : public local::ReceivedMemory {
public:
    Received(std::string principal, bool sender_may_write)
        : principal_(std::move(principal)), sender_may_write_(sender_may_write) {}
    const local::Mapping& mapping() const override { return mapping_; }
    const std::string& principal() const override { return principal_; }
    bool sender_may_write() const override { return sender_may_write_; }
    local::SegmentUsePointer pass_on(const std::shared_ptr<ReceivedMemory>& self) override {
        return std::make_shared<local::PassedOn>(received, self, [] {});
    }

    const local::Segment segment{kBytes};
    const std::shared_ptr<const local::ReceivedSegment> received =
        std::make_shared<const local::ReceivedSegment>(segment.descriptor(), kBytes);

private:
    const local::Mapping mapping_{*segment.descriptor(), kBytes};
    const std::string principal_;
    const bool sender_may_write_;
};

}  // namespace

TEST_CASE("A client's memory is in use while it is passed on, though no tensor of the server is in it", "[server]") {
    Lender lender;
    lender.memory = lender.client->borrow("a", "");
    auto place = lender.pass_on();
    REQUIRE(place);
    CHECK(lender.pass_on()->segment == place->segment);  // one use for all
    const bool taken_over = GENERATE(false, true);
    if (taken_over) lender.memory.copied();
    CHECK(lender.pass_on().has_value() != taken_over);
    lender.memory = {};
    CHECK_FALSE(lender.client->recycle("a"));
    CHECK(lender.is_told({}));
    place.reset();
    CHECK(lender.is_told({"segment.free a"}));
    CHECK(lender.client->recycle("a"));
}

TEST_CASE("Memory that another process may go on reading is retired by its client, and never told free", "[server]") {
    Lender lender;
    lender.memory = lender.client->borrow("a", "");
    auto place = lender.pass_on();
    REQUIRE(place);
    CHECK_FALSE(lender.client->recycle("a"));
    place->segment->retire();
    place->segment->retire();
    place.reset();
    lender.memory = {};
    background_executor().post([&] { lender.told.with([](auto& all) { all.emplace_back("end"); }); });
    CHECK(lender.is_told({"segment.retire a", "end"}));
    CHECK_FALSE(lender.client->recycle("a"));
    lender.client->withdraw("a");
    CHECK(lender.client->recycle("a"));
}

TEST_CASE("A segment has one id each time that it is passed on, until its client frees it or ends", "[server]") {
    Lender lender;
    const auto listener = std::make_shared<Listener>();
    const auto id = [&] {
        lender.memory = lender.client->borrow("a", "");
        const auto place = lender.pass_on();
        REQUIRE(place);
        place->segment->tell_end(listener);
        return place->segment->segment().id();
    };
    const std::string first = id();
    CHECK(id() == first);
    CHECK(listener->gone == 0);
    lender.client->withdraw("a");
    CHECK(listener->gone > 0);
    CHECK_FALSE(lender.pass_on());
    lender.offer();
    CHECK_FALSE(lender.pass_on());  // the memory in use is of the segment that is gone
    CHECK(id() != first);
    const int before = listener->gone;
    lender.client->ended();
    CHECK(listener->gone > before);
    CHECK_FALSE(lender.pass_on());
}

TEST_CASE("A client gets received memory of its own principal only, and no memory that another client can write to",
          "[server]") {
    Fixture fixture;
    const auto finds = [&](const char* principal, bool sender_may_write) {
        const auto memory = std::make_shared<Received>(principal, sender_may_write);
        const local::ReceivedRange range(memory);
        return fixture.client->find(memory->mapping().data(), kBytes).has_value();
    };
    CHECK(finds("uid:0", false));
    CHECK_FALSE(finds("uid:1", false));
    CHECK_FALSE(finds("uid:0", true));
}
