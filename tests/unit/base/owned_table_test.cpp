#include "base/concurrency/owned_table.hpp"

#include <chrono>
#include <memory>
#include <string>

#include <catch2/catch_test_macros.hpp>

using namespace shared_tensor;
using namespace std::chrono_literals;
using Table = OwnedTable<std::string>;

TEST_CASE("an owned table sums entries and bytes of all and of each owner, and finds those of one owner",
          "[owned_table]") {
    Table table;
    table.add("a", "ann", 10, Table::kNever, "A");
    Table::Entry& b = table.add("b", "ann", 5, Table::kNever, "B");
    table.add("c", "bob", 1, Table::kNever, "C");
    table.add("d", "ann", 1, Table::kNever, "D");
    CHECK(table.sums().entries == 4);
    CHECK(table.sums().bytes == 17);
    CHECK(table.sums_of("ann").entries == 3);
    CHECK(table.sums_of("ann").bytes == 16);
    table.set_bytes(b, 7);
    CHECK(table.sums_of("ann").bytes == 18);
    CHECK(table.take(b) == "B");
    CHECK(table.find("b") == nullptr);
    CHECK(table.sums_of("ann").bytes == 11);
    CHECK(table.sums().bytes == 12);
    std::string taken;
    while (Table::Entry* const entry = table.any_of("ann"))
        taken += table.take(*entry);
    CHECK((taken == "AD" || taken == "DA"));
    CHECK(table.sums_of("ann").entries == 0);
    CHECK(table.find("c")->owner() == "bob");
    CHECK(table.sums().entries == 1);
}

TEST_CASE("an owned table gives out what is due in the order of the deadlines", "[owned_table]") {
    OwnedTable<std::unique_ptr<std::string>> table;  // values that can only be moved
    const auto add = [&](const char* key, SteadyTime deadline) -> auto& {
        return table.add(key, "", 0, deadline, std::make_unique<std::string>(key));
    };
    const SteadyTime start;
    add("late", start + 3s);
    add("never", Table::kNever);
    auto& moved = add("moved", start + 1s);
    add("early", start + 2s);
    CHECK(table.first()->key() == "moved");
    table.set_deadline(moved, start + 2s);  // equal ones go in the order in which they were set
    CHECK(table.first_due(start + 1s) == nullptr);
    REQUIRE(table.first_due(start + 2s) != nullptr);
    std::string taken;
    while (auto* const entry = table.first_due(start + 10s))
        taken += *table.take(*entry) + ' ';
    CHECK(taken == "early moved late ");
    CHECK(table.first() == nullptr);
    CHECK(table.entries().size() == 1);
}
