#include "base/system/fork.hpp"

#include <catch2/catch_test_macros.hpp>

#include "support/forked_child.hpp"

using namespace shared_tensor;
using test::in_child;

TEST_CASE("a mark is of the process that made it, not of its children", "[process_mark]") {
    const ProcessMark mark;
    CHECK(mark.is_here());
    CHECK_FALSE(in_child([&] { return mark.is_here(); }));
    CHECK(in_child([] { return ProcessMark().is_here(); }));
    CHECK_FALSE(in_child([] {
        const ProcessMark mine;
        return in_child([&] { return mine.is_here(); });
    }));
    CHECK(mark.is_here());
}
