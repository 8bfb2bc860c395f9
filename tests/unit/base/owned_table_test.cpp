#include "base/concurrency/owned_table.hpp"

#include <chrono>
#include <memory>
#include <string>

#include <catch2/catch_test_macros.hpp>

using namespace shared_tensor;
using namespace std::chrono_literals;
using Table = OwnedTable<std::string>;

namespace {

constexpr SteadyTime at(std::chrono::seconds time) { return SteadyTime(time); }

}  // namespace

TEST_CASE("an owned table sums entries and bytes of all and of each owner", "[owned_table]") {
    Table table;
    table.add("a", "ann", 10, Table::kNever, "A");
    Table::Entry& b = table.add("b", "ann", 5, Table::kNever, "B");
    table.add("c", "bob", 1, Table::kNever, "C");
    CHECK(table.sums().entries == 3);
    CHECK(table.sums().bytes == 16);
    CHECK(table.sums_of("ann").entries == 2);
    CHECK(table.sums_of("ann").bytes == 15);
    table.set_bytes(b, 7);
    CHECK(table.sums_of("ann").bytes == 17);
    CHECK(table.take(b) == "B");
    CHECK(table.find("b") == nullptr);
    CHECK(table.sums_of("ann").bytes == 10);
    CHECK(table.sums().bytes == 11);
    CHECK(table.sums_of("nobody").entries == 0);
}

TEST_CASE("an owned table finds the entries of one owner until none is left", "[owned_table]") {
    Table table;
    for (const char* key : {"a", "b", "c"})
        table.add(key, key == std::string("b") ? "bob" : "ann", 0, Table::kNever, key);
    std::string taken;
    while (Table::Entry* const entry = table.any_of("ann"))
        taken += table.take(*entry);
    CHECK((taken == "ac" || taken == "ca"));
    CHECK(table.find("b")->owner() == "bob");
    CHECK(table.sums().entries == 1);
}

TEST_CASE("an owned table gives out what is due in the order of the deadlines", "[owned_table]") {
    Table table;
    table.add("late", "", 0, at(3s), "late");
    table.add("never", "", 0, Table::kNever, "never");
    Table::Entry& moved = table.add("moved", "", 0, at(1s), "moved");
    table.add("early", "", 0, at(2s), "early");
    CHECK(table.first()->key() == "moved");
    table.set_deadline(moved, at(2s));  // equal ones go in the order in which they were set
    CHECK(table.first_due(at(1s)) == nullptr);
    std::string taken;
    while (Table::Entry* const entry = table.first_due(at(10s)))
        taken += table.take(*entry) + ' ';
    CHECK(taken == "early moved late ");
    CHECK(table.first() == nullptr);
    CHECK(table.entries().size() == 1);
}

TEST_CASE("an owned table takes values that can only be moved", "[owned_table]") {
    OwnedTable<std::unique_ptr<int>, int, int> table;
    auto& entry = table.add(1, 7, 0, SteadyTime::max(), std::make_unique<int>(5));
    CHECK(entry.key() == 1);
    CHECK(entry.owner() == 7);
    CHECK(*table.take(entry) == 5);
}
