#include "runtime/tables/lease_table.hpp"

#include <catch2/catch_test_macros.hpp>

#include "support/failing_memory.hpp"
#include "support/fake_tensor.hpp"
#include "support/manual_clock.hpp"

using namespace shared_tensor;
using namespace std::chrono_literals;
using runtime::LeaseHolder;
using runtime::LeaseTable;

namespace {

using Ids = std::vector<std::string>;

/// What became of the bytes of leases.
struct Fate {
    int alive = 0, retired = 0, left = 0;  ///< left: by a process that is gone
    bool operator==(const Fate&) const = default;
};

runtime::LeasedBytes bytes_of(Fate& fate) {
    ++fate.alive;
    const std::shared_ptr<Fate> memory(&fate, [](Fate* its) { --its->alive; });
    return {std::make_shared<test::FakeTensor>("x"),
            [memory](bool process_is_gone) { ++(process_is_gone ? memory->left : memory->retired); }};
}

struct Leases {
    explicit Leases(LeaseLimits limits = {}) : table(limits, clock) {}

    std::string grant(const LeaseHolder& lease_holder, std::uint64_t bytes = 100) {
        auto granted = table.grant(lease_holder, "shm", bytes, bytes_of(fate));
        REQUIRE(std::holds_alternative<std::string>(granted));
        return std::get<std::string>(granted);
    }
    bool rejects(const LeaseHolder& lease_holder, std::uint64_t bytes) {
        const auto granted = table.grant(lease_holder, "shm", bytes, bytes_of(fate));
        return std::holds_alternative<LeaseTable::Rejected>(granted);
    }
    std::size_t confirm(const LeaseHolder& by, const Ids& ids) { return table.confirm(by.client, ids); }
    std::size_t release(const LeaseHolder& by, const Ids& ids) { return table.release(by.client, ids); }
    std::size_t renew(const LeaseHolder& by, const std::string& id, std::optional<std::chrono::milliseconds> ttl = {}) {
        return table.renew(by.client, Ids{id}, ttl);
    }
    std::size_t expired_after(SteadyTime::duration time) {
        clock.advance(time);
        return table.expire();
    }

    Fate fate;
    test::ManualClock clock;
    LeaseTable table;
};

const LeaseHolder kAnn{"uid:1", "s-ann", 11, true};
const LeaseHolder kFar{"token:far", "s-far", 0, false};  ///< its end is not seen

}  // namespace

TEST_CASE("a lease that nobody confirms, or that is revoked, ends, and its memory is not used again", "[lease]") {
    Leases leases;
    const std::string id = leases.grant(kAnn);
    CHECK(leases.expired_after(59s) == 0);
    const std::string revoked = leases.grant(kAnn);
    CHECK(leases.table.revoke(Ids{revoked, "l-invented"}) == 1);
    CHECK(leases.fate == Fate{1, 1});
    CHECK(leases.expired_after(1s) == 1);
    CHECK(leases.fate == Fate{0, 2});
    CHECK(leases.confirm(kAnn, {id, revoked}) == 0);
    CHECK(leases.table.stats().expired == 1);
}

TEST_CASE("leases of a client whose end is not seen live for a time and can be renewed", "[lease]") {
    Leases leases;
    const std::string id = leases.grant(kFar), lazy = leases.grant(kFar);
    CHECK(leases.expired_after(299s) == 0);
    CHECK(leases.renew(kFar, id) == 1);
    CHECK(leases.confirm(kFar, {lazy}) == 1);  // that puts no end off
    CHECK(leases.expired_after(1s) == 1);
    CHECK(leases.renew(kFar, lazy) == 0);
    CHECK(leases.renew(kFar, id, 1000h) == 1);  // cut to a day
    CHECK(leases.expired_after(24h - 1s) == 0);
    CHECK(leases.expired_after(1s) == 1);
    CHECK(leases.fate == Fate{0, 2});
}

TEST_CASE("a lease of a client whose end is not seen is held at once, and ends with its session", "[lease]") {
    Leases leases;
    const std::string id = leases.grant(kFar);
    CHECK(leases.table.find(id)->confirmed);
    leases.grant(kAnn);
    CHECK(leases.table.session_ended(kFar.client) == 1);
    CHECK(leases.table.session_ended(kFar.client) == 0);
    CHECK(leases.table.session_ended(kAnn.client) == 0);  // its process may have it mapped
    CHECK(leases.fate.alive == 1);
}

TEST_CASE("what is left when the table goes is retired: its readers live on", "[lease]") {
    Fate fate;
    (void)LeaseTable().grant(kAnn, "shm", 1, bytes_of(fate));
    CHECK(fate == Fate{0, 1});
}

TEST_CASE("a lease that finds no memory for its end goes on, and its bytes are counted", "[lease]") {
    Leases leases({.max_kept_bytes = 150});
    const std::string id = leases.grant(kFar, 100);
    test::with_each_allocation_failing([&] { leases.release(kFar, Ids{id}); },
                                       [&] {
                                           CHECK(leases.table.stats().leases == 1);
                                           CHECK(leases.rejects(kFar, 100));
                                       });
    CHECK(leases.table.stats().leases == 0);
    leases.grant(kFar, 100);
}
