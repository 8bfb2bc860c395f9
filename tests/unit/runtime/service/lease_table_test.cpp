#include "runtime/tables/lease_table.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <thread>

#include "support/failing_memory.hpp"
#include "support/manual_clock.hpp"

using namespace shared_tensor;
using namespace std::chrono_literals;
using Catch::Matchers::ContainsSubstring;
using runtime::LeaseHolder;
using runtime::LeaseInfo;
using runtime::LeaseLimits;
using runtime::LeaseTable;

namespace {

/// What became of the bytes of leases.
struct Fate {
    int alive = 0, retired = 0, left = 0;  ///< left: by a process that is gone
};

runtime::LeasedBytes bytes_of(Fate& fate) {
    ++fate.alive;
    const std::shared_ptr<Fate> memory(&fate, [](Fate* its) { --its->alive; });
    return {nullptr, [memory](bool process_is_gone) { ++(process_is_gone ? memory->left : memory->retired); }};
}

struct Leases {
    explicit Leases(LeaseLimits limits = {}) : table(limits, clock) {}

    std::string grant(const LeaseHolder& lease_holder, std::uint64_t bytes = 100) {
        auto granted = table.grant(lease_holder, "shm", bytes, bytes_of(fate));
        REQUIRE(std::holds_alternative<std::string>(granted));
        return std::get<std::string>(granted);
    }
    std::string rejection(const LeaseHolder& lease_holder) {
        const auto granted = table.grant(lease_holder, "shm", 1, bytes_of(fate));
        REQUIRE(std::holds_alternative<LeaseTable::Rejected>(granted));
        return std::get<LeaseTable::Rejected>(granted).reason;
    }

    bool rejects(const LeaseHolder& lease_holder, std::uint64_t bytes) {
        const auto granted = table.grant(lease_holder, "shm", bytes, bytes_of(fate));
        return std::holds_alternative<LeaseTable::Rejected>(granted);
    }

    Fate fate;
    test::ManualClock clock;
    LeaseTable table;
};

const LeaseHolder kAnn{"uid:1", "s-ann", 11, true};
const LeaseHolder kBob{"uid:2", "s-bob", 22, true};
const LeaseHolder kFar{"token:far", "s-far", 0, false};

using Ids = std::vector<std::string>;

}  // namespace

TEST_CASE("a lease keeps its bytes until its client releases it", "[lease]") {
    Leases leases;
    const std::string id = leases.grant(kAnn, 4096);
    CHECK(id.starts_with("l-"));
    CHECK(id.size() == 2 + 32);
    CHECK(leases.table.confirm(kAnn.client, Ids{id}) == 1);
    leases.clock.advance(100h);
    CHECK(leases.table.expire() == 0);
    CHECK(leases.fate.alive == 1);
    CHECK(leases.table.stats().bytes == 4096);
    CHECK(leases.table.release(kAnn.client, Ids{id}) == 1);
    CHECK(leases.fate.alive == 0);
    CHECK(leases.fate.retired == 0);
    CHECK(leases.table.stats().bytes == 0);
    CHECK(leases.table.stats().leases == 0);
}

TEST_CASE("a lease that nobody confirms ends, and its memory is not used again", "[lease]") {
    Leases leases;
    const std::string id = leases.grant(kAnn);
    leases.clock.advance(59s);
    CHECK(leases.table.expire() == 0);
    leases.clock.advance(1s);
    CHECK(leases.table.expire() == 1);
    CHECK(leases.fate.alive == 0);
    CHECK(leases.fate.retired == 1);
    CHECK(leases.table.confirm(kAnn.client, Ids{id}) == 0);
    CHECK(leases.table.stats().expired == 1);
}

TEST_CASE("a lease is its client's alone", "[lease]") {
    Leases leases;
    const std::string id = leases.grant(kAnn);
    CHECK(leases.table.confirm(kBob.client, Ids{id}) == 0);
    CHECK(leases.table.renew(kBob.client, Ids{id}, 1h) == 0);
    CHECK(leases.table.release(kBob.client, Ids{id}) == 0);
    CHECK(leases.table.release(kAnn.client, Ids{"l-invented", id, id}) == 1);
    CHECK(leases.table.release(kAnn.client, Ids{id}) == 0);
}

TEST_CASE("the end of a client ends its leases and nobody else's", "[lease]") {
    for (const bool process_is_gone : {true, false}) {
        Leases leases;
        for (int i = 0; i < 1000; ++i)
            leases.grant(kAnn);
        const std::string other = leases.grant(kBob);
        CHECK(leases.table.client_ended(kAnn.client, process_is_gone) == 1000);
        CHECK(leases.table.client_ended(kAnn.client, process_is_gone) == 0);
        CHECK(leases.fate.alive == 1);
        CHECK(leases.fate.retired == (process_is_gone ? 0 : 1000));
        CHECK(leases.fate.left == (process_is_gone ? 1000 : 0));
        CHECK(leases.table.release(kBob.client, Ids{other}) == 1);
    }
}

TEST_CASE("leases of a client whose end is not seen live for a time and can be renewed", "[lease]") {
    Leases leases;
    const std::string id = leases.grant(kFar), lazy = leases.grant(kFar);
    leases.table.confirm(kFar.client, Ids{id, lazy});
    leases.clock.advance(299s);
    CHECK(leases.table.renew(kFar.client, Ids{id}, std::nullopt) == 1);
    leases.clock.advance(1s);
    CHECK(leases.table.expire() == 1);
    CHECK(leases.table.renew(kFar.client, Ids{lazy}, std::nullopt) == 0);
    CHECK(leases.table.renew(kFar.client, Ids{id}, 1000h) == 1);  // cut to a day
    leases.clock.advance(24h - 1s);
    CHECK(leases.table.expire() == 0);
    leases.clock.advance(1s);
    CHECK(leases.table.expire() == 1);
    CHECK(leases.fate.retired == 2);
}

TEST_CASE("a lease of a client whose end is not seen is held at once, and ends with its session", "[lease]") {
    Leases leases;
    const std::string id = leases.grant(kFar);
    leases.grant(kAnn);
    leases.clock.advance(61s);
    CHECK(leases.table.expire() == 1);  // ann's, which nobody confirmed
    REQUIRE(leases.table.find(id));
    CHECK(leases.table.find(id)->confirmed);
    CHECK(leases.table.session_ended(kFar.client) == 1);
    CHECK(leases.table.session_ended(kFar.client) == 0);
    leases.grant(kAnn);
    CHECK(leases.table.session_ended(kAnn.client) == 0);  // its process may have it mapped
    CHECK(leases.fate.alive == 1);
}

TEST_CASE("what clients whose end is not seen hold is bounded in bytes", "[lease]") {
    LeaseLimits limits;
    limits.max_kept_bytes = 100;
    Leases leases(limits);
    const std::string id = leases.grant(kFar, 60);
    leases.grant(kAnn, 1'000'000);
    CHECK(leases.table.stats().leases == 2);
    CHECK(std::holds_alternative<LeaseTable::Rejected>(leases.table.grant(kFar, "url", 41, bytes_of(leases.fate))));
    leases.grant(kFar, 40);
    CHECK_THAT(leases.rejection(kFar), ContainsSubstring("100 bytes"));
    CHECK(leases.table.release(kFar.client, Ids{id}) == 1);
    leases.grant(kFar, 60);
}

TEST_CASE("confirming again puts no end off", "[lease]") {
    Leases leases;
    const std::string id = leases.grant(kFar);
    leases.table.confirm(kFar.client, Ids{id});
    leases.clock.advance(299s);
    CHECK(leases.table.confirm(kFar.client, Ids{id}) == 1);
    leases.clock.advance(1s);
    CHECK(leases.table.expire() == 1);
}

TEST_CASE("a lease that is revoked never works again, and its memory is not used again", "[lease]") {
    Leases leases;
    const std::string id = leases.grant(kAnn);
    CHECK(leases.table.revoke(Ids{id, "l-invented"}) == 1);
    CHECK(leases.fate.retired == 1);
    CHECK(leases.table.confirm(kAnn.client, Ids{id}) == 0);
}

TEST_CASE("limits for a client and for all say what to do", "[lease]") {
    LeaseLimits limits;
    limits.max_leases = 3;  // two of one client
    Leases leases(limits);
    const std::string id = leases.grant(kAnn);
    leases.grant(kAnn);
    CHECK_THAT(leases.rejection(kAnn), ContainsSubstring("holds 2 leases") && ContainsSubstring("release"));
    CHECK(leases.fate.alive == 2);
    leases.grant(kBob);
    CHECK_THAT(leases.rejection(kBob), ContainsSubstring("3 leases"));
    leases.table.release(kAnn.client, Ids{id});
    leases.grant(kAnn);
    CHECK(leases.table.stats().leases == 3);
    CHECK(leases.table.stats().granted == 4);
}

TEST_CASE("the list says who holds what, for how long", "[lease]") {
    Leases leases;
    const std::string ann = leases.grant(kAnn, 10), far = leases.grant(kFar, 20);
    leases.table.confirm(kAnn.client, Ids{ann});
    leases.clock.advance(5s);
    CHECK(leases.table.list().size() == 2);
    const auto mine = leases.table.list("uid:1");
    REQUIRE(mine.size() == 1);
    const LeaseInfo& info = mine.front();
    CHECK(info.id == ann);
    CHECK(info.client == "s-ann");
    CHECK(info.pid == 11);
    CHECK(info.transport == "shm");
    CHECK(info.bytes == 10);
    CHECK(info.confirmed);
    CHECK(info.age == 5s);
    CHECK_FALSE(info.expires_in);
    const auto others = leases.table.list("token:far");
    REQUIRE(others.size() == 1);
    CHECK(others.front().confirmed);
    CHECK(others.front().expires_in == 295s);
}

TEST_CASE("what is left when the table goes is retired: its readers live on", "[lease]") {
    Fate fate;
    {
        LeaseTable table;
        (void)table.grant(kAnn, "shm", 1, bytes_of(fate));
    }
    CHECK(fate.retired == 1);
    CHECK(fate.alive == 0);
}

TEST_CASE("threads grant and release at once, and all is counted back", "[lease]") {
    LeaseTable table;
    {
        std::vector<std::jthread> threads;
        for (int thread = 0; thread < 4; ++thread) {
            threads.emplace_back([&, client = "s-" + std::to_string(thread)] {
                for (int i = 0; i < 500; ++i) {
                    const auto id = table.grant({"uid:1", client, 0, true}, "shm", 7, {nullptr, [](bool) {}});
                    const Ids ids{std::get<std::string>(id)};
                    table.confirm(client, ids);
                    if (i % 3 == 0) table.revoke(ids);
                    if (i % 3 == 1) table.release(client, ids);
                }
                table.client_ended(client, true);
            });
        }
    }
    CHECK(table.stats().leases == 0);
    CHECK(table.stats().bytes == 0);
    CHECK(table.stats().granted == 2000);
}

TEST_CASE("a lease that finds no memory for its end goes on, and its bytes are counted", "[lease]") {
    Leases leases({.max_kept_bytes = 150});
    const std::string id = leases.grant(kFar, 100);
    test::with_each_allocation_failing([&] { leases.table.release(kFar.client, Ids{id}); },
                                       [&] {
                                           CHECK(leases.table.stats().leases == 1);
                                           CHECK(leases.rejects(kFar, 100));
                                       });
    CHECK(leases.table.stats().leases == 0);
    leases.grant(kFar, 100);
}
