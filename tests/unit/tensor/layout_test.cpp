#include "tensor/layout.hpp"

#include <array>
#include <catch2/catch_test_macros.hpp>
#include <limits>

using namespace shared_tensor::tensor;

namespace {
constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();
}

TEST_CASE("a tensor's extent counts elements, bytes and what its strides reach", "[tensor]") {
    struct Row {
        Shape shape, strides;
        std::size_t item_size;
        Extent extent;
    };
    const Row rows[] = {
        {{}, {}, 4, {1, 4, 4}},           {{2, 3}, {}, 4, {6, 24, 24}},     {{2, 3}, {3, 1}, 4, {6, 24, 24}},
        {{2, 3}, {1, 2}, 4, {6, 24, 24}}, {{2, 3}, {10, 2}, 1, {6, 6, 15}}, {{4, 5}, {0, 0}, 8, {20, 160, 8}},
        {{0, 7}, {}, 4, {0, 0, 0}},       {{0, 7}, {100, 1}, 4, {0, 0, 0}}, {{1, 1}, {kMax / 2, 9}, 1, {1, 1, 1}},
    };
    for (const Row& row : rows) {
        const auto extent = extent_of(row.shape, row.strides, row.item_size);
        REQUIRE(extent);
        CHECK(extent->elements == row.extent.elements);
        CHECK(extent->bytes == row.extent.bytes);
        CHECK(extent->reach == row.extent.reach);
    }
}

TEST_CASE("an extent beyond 63 bits is none, an empty tensor's other dimensions included", "[tensor]") {
    CHECK_FALSE(extent_of(Shape{kMax, 2}, {}, 1));
    CHECK_FALSE(extent_of(Shape{kMax}, {}, 2));
    CHECK_FALSE(extent_of(Shape{1LL << 32, 1LL << 31}, {}, 1));
    CHECK_FALSE(extent_of(Shape{0, 1LL << 32, 1LL << 31}, {}, 1));
    CHECK_FALSE(extent_of(Shape{3}, Shape{kMax}, 1));
    CHECK_FALSE(extent_of(Shape{2}, Shape{kMax}, 1));
    CHECK_FALSE(extent_of(Shape{2, 2}, Shape{kMax / 2 + 1, kMax / 2 + 1}, 1));
    CHECK_FALSE(extent_of(Shape{2}, Shape{kMax / 4}, 8));
    CHECK(extent_of(Shape{kMax}, {}, 1));
}

TEST_CASE("strides of dimensions of one element or none do not make a tensor non-contiguous", "[tensor]") {
    CHECK(is_contiguous(Shape{2, 1, 3}, Shape{3, 77, 1}));
    CHECK(is_contiguous(Shape{0, 3}, Shape{5, 5}));
    CHECK(is_contiguous({}, {}));
    CHECK_FALSE(is_contiguous(Shape{2, 3}, Shape{1, 2}));
    CHECK_FALSE(is_contiguous(Shape{2, 3}, Shape{4, 1}));
    CHECK_FALSE(is_contiguous(Shape{2}, Shape{0}));
}

TEST_CASE("contiguous strides are those that torch gives", "[tensor]") {
    CHECK(contiguous_strides(Shape{2, 3, 4}) == Shape{12, 4, 1});
    CHECK(contiguous_strides(Shape{2, 0, 4}) == Shape{4, 4, 1});
    CHECK(contiguous_strides(Shape{}).empty());
}

TEST_CASE("gathering puts elements in order for every item size", "[tensor]") {
    std::array<std::byte, 6 * 16> in{};
    for (std::size_t i = 0; i < in.size(); ++i)
        in[i] = static_cast<std::byte>(i);
    for (const std::size_t item : {1U, 2U, 4U, 8U, 16U}) {
        std::array<std::byte, 6 * 16> out{};
        gather(in.data(), Shape{3, 2}, Shape{1, 3}, item, out.data());  // a transposed 2 x 3
        const std::size_t order[] = {0, 3, 1, 4, 2, 5};
        for (std::size_t i = 0; i < 6; ++i) {
            CHECK(std::equal(&out[i * item], &out[i * item] + item, &in[order[i] * item]));
        }
    }
}
