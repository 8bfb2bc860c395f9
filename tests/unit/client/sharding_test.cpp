// Which part of a tensor a process of a mesh holds.

#include <catch2/catch_test_macros.hpp>
#include <stdexcept>
#include <string>

#include <shared_tensor/sharding.hpp>

using namespace shared_tensor;

TEST_CASE("a dimension is divided as torch.chunk does: the last parts are smaller, or empty", "[sharding]") {
    const auto part = [](std::int64_t size, std::int64_t number) {
        return part_of({size, 3}, {shard(0)}, {{4}, {number}});
    };
    CHECK(part(8, 1) == TensorPart{{2, 0}, {2, 3}});
    CHECK(part(9, 0) == TensorPart{{0, 0}, {3, 3}});
    CHECK(part(9, 2) == TensorPart{{6, 0}, {3, 3}});
    CHECK(part(9, 3) == TensorPart{{9, 0}, {0, 3}});
    CHECK(part(2, 1) == TensorPart{{1, 0}, {1, 3}});
    CHECK(part(2, 3) == TensorPart{{2, 0}, {0, 3}});
    CHECK(part(0, 3) == TensorPart{{0, 0}, {0, 3}});
}

TEST_CASE("dimensions of a mesh divide one after the other, also the same dimension of a tensor", "[sharding]") {
    CHECK(part_of({8, 6}, {shard(0), shard(1)}, {{2, 3}, {1, 2}}) == TensorPart{{4, 4}, {4, 2}});
    CHECK(part_of({8, 6}, {replicate(), shard(1)}, {{2, 3}, {1, 0}}) == TensorPart{{0, 0}, {8, 2}});
    CHECK(part_of({10}, {shard(0), shard(0)}, {{2, 2}, {1, 1}}) == TensorPart{{8}, {2}});
    CHECK(part_of({}, {replicate()}, {{3}, {2}}) == TensorPart{{}, {}});
}

TEST_CASE("numbers that do not fit together are rejected", "[sharding]") {
    CHECK_THROWS_AS(part_of({8}, {}, {{}, {}}), std::invalid_argument);
    CHECK_THROWS_AS(part_of({8}, {shard(0)}, {{2, 2}, {0, 0}}), std::invalid_argument);
    CHECK_THROWS_AS(part_of({8}, {shard(0)}, {{2}, {2}}), std::invalid_argument);
    CHECK_THROWS_AS(part_of({8}, {shard(0)}, {{2}, {-1}}), std::invalid_argument);
    CHECK_THROWS_AS(part_of({8}, {shard(0)}, {{0}, {0}}), std::invalid_argument);
    CHECK_THROWS_AS(part_of({8}, {shard(1)}, {{2}, {0}}), std::invalid_argument);
}
