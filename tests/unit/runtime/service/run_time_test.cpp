#include "runtime/functions/function_table.hpp"

#include <catch2/catch_test_macros.hpp>

using namespace shared_tensor;
using namespace std::chrono_literals;
using runtime::RunTime;

TEST_CASE("a function of which nothing is known is taken for brief", "[service]") { CHECK(RunTime().brief()); }

TEST_CASE("a function is brief while its runs are", "[service]") {
    RunTime time;
    for (int i = 0; i < 100; ++i)
        time.note(20us);
    CHECK(time.brief());
}

TEST_CASE("a function that takes milliseconds is not brief after its first run", "[service]") {
    RunTime time;
    time.note(1ms);
    CHECK_FALSE(time.brief());
}

TEST_CASE("one run that hung for an hour is forgotten within a hundred brief ones", "[service]") {
    RunTime time;
    time.note(1h);
    CHECK_FALSE(time.brief());
    for (int i = 0; i < 100; ++i)
        time.note(10us);
    CHECK(time.brief());
}
