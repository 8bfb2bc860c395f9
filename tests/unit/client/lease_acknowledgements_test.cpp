#include "client/local/lease_acknowledgements.hpp"

#include <catch2/catch_test_macros.hpp>
#include <new>
#include <stdexcept>
#include <system_error>

using namespace shared_tensor;
using namespace std::chrono_literals;

namespace {

using Ids = std::vector<std::string>;

/// A background thread and a channel that only remember; the test says when the time has come.
struct Fixture {
    struct Later {
        std::chrono::milliseconds delay;
        std::function<void()> work;
    };
    struct Message {
        std::string method;
        Ids leases;
        bool operator==(const Message&) const = default;
    };

    std::vector<Later> later;
    std::vector<Message> told;
    std::function<void()> fault = [] {};
    bool has_channel = true;
    client::LeaseAcknowledgements words{[this](std::chrono::milliseconds delay, std::function<void()> work) {
                                            fault();
                                            later.push_back({delay, std::move(work)});
                                        },
                                        [this](const char* method, std::span<const std::string> leases) {
                                            if (!has_channel) throw std::runtime_error("the channel is closed");
                                            told.push_back({method, Ids(leases.begin(), leases.end())});
                                        }};

    void run_all() {
        for (const Later& one : std::exchange(later, {}))
            one.work();
    }
};

}  // namespace

TEST_CASE("leases are confirmed and released many at once", "[lease]") {
    Fixture fixture;
    for (const char* lease : {"l-1", "l-2", "l-3"})
        fixture.words.confirm({lease});
    REQUIRE(fixture.later.size() == 1);
    CHECK(fixture.later[0].delay == 2s);
    fixture.words.release({"l-2"});
    REQUIRE(fixture.later.size() == 2);
    CHECK(fixture.later[1].delay == 2ms);
    CHECK(fixture.told.empty());
    fixture.later[1].work();
    CHECK(fixture.told == std::vector<Fixture::Message>{{"lease.confirm", {"l-1", "l-3"}}, {"lease.release", {"l-2"}}});
    fixture.later[0].work();
    CHECK(fixture.told.size() == 2);
}

TEST_CASE("a lease that is released before it was confirmed is not confirmed", "[lease]") {
    Fixture fixture;
    fixture.words.confirm({"l-1"});
    fixture.words.release({"l-1"});
    fixture.run_all();
    CHECK(fixture.told == std::vector<Fixture::Message>{{"lease.release", {"l-1"}}});
}

TEST_CASE("words that come after others were told are told later", "[lease]") {
    Fixture fixture;
    fixture.words.release({"l-1"});
    fixture.run_all();
    fixture.words.release({"l-2"});
    REQUIRE(fixture.later.size() == 1);
    fixture.run_all();
    CHECK(fixture.told == std::vector<Fixture::Message>{{"lease.release", {"l-1"}}, {"lease.release", {"l-2"}}});
}

TEST_CASE("more leases than a packet holds go in several messages", "[lease]") {
    Fixture fixture;
    for (int i = 0; i < 2'500; ++i)
        fixture.words.release({"l-" + std::to_string(i)});
    fixture.run_all();
    REQUIRE(fixture.told.size() == 3);
    CHECK(fixture.told[0].leases.size() == 1000);
    CHECK(fixture.told[1].leases.front() == "l-1000");
    CHECK(fixture.told[2].leases.size() == 500);
    CHECK(fixture.told[2].leases.back() == "l-2499");
}

TEST_CASE("a word for which there was no memory, or no thread, is told with the next", "[lease]") {
    Fixture fixture;
    fixture.fault = [] { throw std::bad_alloc(); };
    CHECK_THROWS_AS(fixture.words.release({"l-1"}), std::bad_alloc);
    fixture.fault = [] { throw std::system_error(EAGAIN, std::generic_category()); };
    CHECK_THROWS_AS(fixture.words.release({"l-1"}), std::system_error);
    fixture.fault = [] {};
    fixture.words.release({"l-2"});
    fixture.run_all();
    CHECK(fixture.told == std::vector<Fixture::Message>{{"lease.release", {"l-1", "l-1", "l-2"}}});
}

TEST_CASE("a channel that is gone costs its words only", "[lease]") {
    Fixture fixture;
    fixture.has_channel = false;
    fixture.words.confirm({"l-1"});
    CHECK_NOTHROW(fixture.run_all());
    fixture.has_channel = true;
    fixture.words.confirm({"l-2"});
    fixture.run_all();
    CHECK(fixture.told == std::vector<Fixture::Message>{{"lease.confirm", {"l-2"}}});
}
