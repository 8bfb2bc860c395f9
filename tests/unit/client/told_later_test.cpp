// What a client tells the server in the background: leases that it has or released, handles, ends of messages.

#include <sys/resource.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <new>
#include <stdexcept>
#include <system_error>

#include "base/concurrency/background.hpp"
#include "client/local/lease_acknowledgements.hpp"
#include "client/local/shared_memory.hpp"
#include "support/forked_child.hpp"
#include "support/process.hpp"

using namespace shared_tensor;
using namespace shared_tensor::test;
using namespace std::chrono_literals;

namespace {

using Ids = std::vector<std::string>;

/// A background thread and a channel that only remember; the test says when the time has come.
struct Leases {
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

/// Releases a handle while no thread can start, and another one afterwards. Returns whether both are released.
bool releases_both() {
    Guarded<Ids> released;
    const auto objects = std::make_shared<client::Objects>([&](const Ids& ids) {
        released.with([&](Ids& all) { all.insert(all.end(), ids.begin(), ids.end()); });
        released.notify_all();
    });
    rlimit before{};
    ::getrlimit(RLIMIT_AS, &before);
    leave_room(::getpid(), std::uint64_t{1} << 20);  // less than the stack of a thread
    objects->adopt("o-1", "Counter");
    ::setrlimit(RLIMIT_AS, &before);
    objects->adopt("o-2", "Counter");
    const auto deadline = std::chrono::steady_clock::now() + 10s;
    return released.lock().wait_until(deadline, [](const Ids& all) { return all == Ids{"o-1", "o-2"}; });
}

}  // namespace

TEST_CASE("leases are confirmed and released many at once, and none is confirmed that was released before",
          "[client][lease]") {
    Leases leases;
    for (const char* lease : {"l-1", "l-2", "l-3"})
        leases.words.confirm({lease});
    REQUIRE(leases.later.size() == 1);
    CHECK(leases.later[0].delay == 2s);
    leases.words.release({"l-2"});
    REQUIRE(leases.later.size() == 2);
    CHECK(leases.later[1].delay == 2ms);
    CHECK(leases.told.empty());
    leases.later[1].work();
    CHECK(leases.told == std::vector<Leases::Message>{{"lease.confirm", {"l-1", "l-3"}}, {"lease.release", {"l-2"}}});
    leases.later[0].work();
    CHECK(leases.told.size() == 2);
    leases.later.clear();
    leases.words.release({"l-1"});  // after others were told
    CHECK(leases.later.size() == 1);
    leases.run_all();
    CHECK(leases.told.back() == Leases::Message{"lease.release", {"l-1"}});
}

TEST_CASE("more leases than a packet holds go in several messages", "[client][lease]") {
    Leases leases;
    for (int i = 0; i < 2'500; ++i)
        leases.words.release({"l-" + std::to_string(i)});
    leases.run_all();
    REQUIRE(leases.told.size() == 3);
    CHECK(leases.told[0].leases.size() == 1000);
    CHECK(leases.told[1].leases.front() == "l-1000");
    CHECK(leases.told[2].leases.size() == 500);
    CHECK(leases.told[2].leases.back() == "l-2499");
}

TEST_CASE(
    "a word for which there was no memory or no thread is told with the next; a channel that is gone costs its "
    "words only",
    "[client][lease]") {
    Leases leases;
    leases.fault = [] { throw std::bad_alloc(); };
    CHECK_THROWS_AS(leases.words.release({"l-1"}), std::bad_alloc);
    leases.fault = [] { throw std::system_error(EAGAIN, std::generic_category()); };
    CHECK_THROWS_AS(leases.words.release({"l-1"}), std::system_error);
    leases.fault = [] {};
    leases.words.release({"l-2"});
    leases.run_all();
    CHECK(leases.told == std::vector<Leases::Message>{{"lease.release", {"l-1", "l-1", "l-2"}}});
    leases.has_channel = false;
    leases.words.confirm({"l-3"});
    CHECK_NOTHROW(leases.run_all());
    leases.has_channel = true;
    leases.words.confirm({"l-4"});
    leases.run_all();
    CHECK(leases.told.back() == Leases::Message{"lease.confirm", {"l-4"}});
}

TEST_CASE("A handle that finds no thread to release it is released with the next handle", "[client][objects]") {
    if (!kAddressSpaceCanBeLimited) SKIP("a sanitizer needs address space of its own: it cannot be limited");
    CHECK(in_child(&releases_both));  // a new process has no thread that releases handles
}

TEST_CASE("A forked child that destroys its copy of a message asks the server nothing", "[client][devices]") {
    int asked = 0;
    auto message = std::make_unique<client::InFlight>([&](bool answered) { asked += answered ? 1 : 10; });
    const auto asked_at_its_end = [&] {
        message.reset();
        background_executor().flush();
        return asked;
    };
    CHECK(in_child([&] { return asked_at_its_end() == 0; }));
    message->answered();
    CHECK(asked_at_its_end() == 1);
}
