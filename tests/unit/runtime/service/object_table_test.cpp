#include "runtime/tables/object_table.hpp"

#include <catch2/catch_test_macros.hpp>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "support/failing_memory.hpp"
#include "support/manual_clock.hpp"

using namespace shared_tensor;
using namespace shared_tensor::test;
using namespace std::chrono_literals;
using runtime::HandleOwner;
using runtime::ObjectTable;

namespace {

/// An object that counts its ends.
ObjectPointer object_of(std::shared_ptr<int> ended) {
    std::shared_ptr<int> value(new int(0), [ended](const int* gone) {
        ++*ended;
        delete gone;
    });
    return std::make_shared<const ObjectCell>(ObjectCell{"thing", {}, std::move(value), "i"});
}

struct Table {
    explicit Table(runtime::ObjectLimits limits = {}, std::chrono::milliseconds idle = 10min)
        : objects(limits, idle, clock) {}
    std::string grant(const HandleOwner& owner, ObjectPointer object) {
        return std::get<std::string>(objects.grant(owner, std::move(object)));
    }
    std::string grant(const HandleOwner& owner) { return grant(owner, object_of(ended)); }
    /// Why no handle is granted.
    std::string reason(const HandleOwner& owner) {
        const auto granted = objects.grant(owner, object_of(ended));
        const auto* rejected = std::get_if<ObjectTable::Rejected>(&granted);
        return rejected != nullptr ? rejected->reason : "granted";
    }
    std::size_t release(const std::string& id, std::optional<std::string_view> principal) {
        const std::vector<std::string> ids{id, "o-nothing"};
        return objects.release(ids, principal);
    }
    bool finds(const std::string& id) { return objects.find(id, "uid:1") != nullptr; }
    std::shared_ptr<int> ended = std::make_shared<int>(0);
    ManualClock clock;
    ObjectTable objects;
};

const HandleOwner kAnna{"uid:1"}, kBen{"uid:2"}, kSession{"uid:1", "s-1", 42};

}  // namespace

TEST_CASE("a handle ends when it was not used for a time, or with its session if it has one", "[service][objects]") {
    Table table({10}, 10s);
    const std::string idle = table.grant(kAnna), used = table.grant(kAnna), bound = table.grant(kSession);
    const std::string other = table.grant({"uid:1", "s-2", 0});
    table.clock.advance(9s);
    CHECK(table.finds(used));
    CHECK(table.objects.info(idle, "uid:1")->expires_in == 1s);
    table.clock.advance(1s);
    CHECK_FALSE(table.finds(idle));
    CHECK(table.objects.list("uid:1").size() == 3);
    CHECK(table.objects.expire() == 1);
    CHECK(*table.ended == 1);
    CHECK(table.objects.info(used, "uid:1")->uses == 1);
    CHECK_FALSE(table.objects.info(bound, "uid:1")->expires_in);
    table.clock.advance(1h);
    CHECK(table.objects.expire() == 1);
    CHECK(table.finds(bound));
    CHECK(table.objects.stats().expired == 2);
    CHECK(table.objects.session_ended("s-1") == 1);
    CHECK(table.objects.session_ended("s-1") == 0);
    CHECK(*table.ended == 3);
    REQUIRE(table.objects.list(std::nullopt).size() == 1);
    CHECK(table.objects.list(std::nullopt)[0].id == other);
}

TEST_CASE("the number of handles is bounded, for each principal and for all", "[service][objects]") {
    Table table({3});
    table.grant(kAnna);
    const std::string second = table.grant(kSession);
    CHECK(table.reason(kAnna).starts_with("uid:1 holds 2 handles"));
    table.grant(kBen);
    CHECK(table.reason(kBen).starts_with("all clients together hold 3"));
    CHECK(table.release(second, "uid:1") == 1);
    CHECK(table.reason(kAnna) == "granted");
}

TEST_CASE("a handle that finds no memory is counted nowhere", "[service][objects]") {
    Table table({.max_handles = 4});  // of which a principal may have two
    const ObjectPointer first = object_of(table.ended), second = object_of(table.ended);
    table.grant(kAnna, first);
    with_each_allocation_failing([&] { table.grant(kAnna, second); },
                                 [&] {
                                     CHECK(table.objects.stats().handles == 1);
                                     CHECK(table.objects.stats().objects == 1);
                                 });
    CHECK(table.objects.stats().handles == 2);
    CHECK(table.objects.stats().objects == 2);
    CHECK(table.reason(kAnna) != "granted");
}
