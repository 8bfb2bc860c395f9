#include "tensor/way.hpp"

#include <catch2/catch_test_macros.hpp>

using namespace shared_tensor::tensor;

TEST_CASE("every way is found by its name", "[tensor]") {
    for (const Way way : kWays)
        CHECK(parse_way(name_of(way)) == way);
    CHECK_FALSE(parse_way("Body").has_value());
}

TEST_CASE("a list of ways keeps their order, drops repetitions and gives unknown words apart", "[tensor]") {
    const Wishes wishes = parse_ways(" shm ,body,, rdma,\tshm , rdma, data");
    CHECK(wishes.ways == std::vector<Way>{Way::shm, Way::body, Way::data});
    CHECK(wishes.unknown == std::vector<std::string>{"rdma"});
    CHECK(join(wishes.ways) == "shm, body, data");
}

TEST_CASE("an empty list of ways has none", "[tensor]") {
    for (const auto* list : {"", " ", ",", " , "}) {
        CHECK(parse_ways(list).ways.empty());
        CHECK(parse_ways(list).unknown.empty());
    }
}
