#include <shared_tensor/tensor_ref.hpp>

#include <array>
#include <catch2/catch_test_macros.hpp>
#include <limits>
#include <memory>
#include <stdexcept>
#include <vector>

using namespace shared_tensor;

namespace {

using Counts = std::vector<std::int64_t>;

Counts list(std::span<const std::int64_t> counts) { return {counts.begin(), counts.end()}; }

/// 0, 1, 2, ... as int32.
std::array<std::int32_t, 24>& numbers() {
    static std::array<std::int32_t, 24> all = [] {
        std::array<std::int32_t, 24> made{};
        for (std::size_t i = 0; i < made.size(); ++i)
            made[i] = static_cast<std::int32_t>(i);
        return made;
    }();
    return all;
}

std::int32_t first(const TensorRef& tensor) { return *reinterpret_cast<const std::int32_t*>(tensor.data()); }

/// Another library's tensor.
struct Foreign {
    TensorRef ref;
};

}  // namespace

template <>
struct shared_tensor::TensorAdapter<Foreign> {
    static TensorRef to_ref(const Foreign& tensor) { return tensor.ref; }
    static Foreign from_ref(const TensorRef& ref) { return {ref}; }
};

TEST_CASE("A tensor tells its layout, and one that cannot be is rejected where the tensor is made", "[tensor_ref]") {
    constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
    const auto make = [](const Counts& shape, const Counts& strides = {}) {
        return TensorRef(numbers().data(), DType::int32, shape, strides);
    };
    const TensorRef plain = make({2, 3, 4}), across = make({4, 3}, {1, 8}), nothing = make({3, 0, 5});
    CHECK(list(plain.strides()) == Counts{12, 4, 1});
    CHECK(plain.elements() == 24);
    CHECK(plain.reach() == 96);
    CHECK(plain.is_contiguous());
    CHECK(plain.device() == Device{});
    CHECK(across.bytes() == 48);
    CHECK(across.reach() == 80);
    CHECK_FALSE(across.is_contiguous());
    CHECK(plain.bytes() == 96);
    for (const TensorRef& empty : {nothing, TensorRef(nullptr, DType::float64, {0})}) {
        CHECK(empty.elements() == 0);
        CHECK(empty.reach() == 0);
        CHECK(empty.is_contiguous());
    }
    CHECK(make({}).elements() == 1);
    CHECK(make({1, 3}, {77, 1}).is_contiguous());  // the stride of a dimension of one element says nothing
    CHECK_FALSE(TensorRef().defined());
    for (const auto& [shape, strides] :
         std::vector<std::pair<Counts, Counts>>{{{-1}, {}},
                                                {{2, 3}, {1}},
                                                {{2}, {-1}},
                                                {{kMost}, {}},
                                                {{kMost, 2, 0}, {}},  // the dimensions that are left out count too
                                                {{1 << 20, 1 << 20, 1 << 20, 8}, {}},
                                                {{2}, {kMost}},
                                                {{3, 3}, {kMost / 2, kMost / 2}}})
        CHECK_THROWS_AS(make(shape, strides), std::invalid_argument);
    CHECK_NOTHROW(make({kMost / 4 - 1}));
    CHECK_THROWS_AS(TensorRef(nullptr, DType::int32, {1}), std::invalid_argument);
}

TEST_CASE("Slices and elements of a tensor are views that keep its memory", "[tensor_ref]") {
    auto memory = std::make_shared<std::array<std::int32_t, 24>>(numbers());
    const std::weak_ptr<void> watch = memory;
    TensorRef rows;
    {
        const TensorRef whole(memory->data(), DType::int32, {4, 6}, {}, {}, memory);
        memory.reset();
        rows = whole.slice(1, 3);
        CHECK(list(rows.shape()) == Counts{2, 6});
        CHECK(first(rows) == 6);
        const TensorRef row = whole.select(3);
        CHECK(list(row.shape()) == Counts{6});
        CHECK(first(row) == 18);
        CHECK(first(row.select(5)) == 23);
        CHECK(whole.slice(4, 4).elements() == 0);
    }
    CHECK_FALSE(watch.expired());
    CHECK(first(rows) == 6);
    rows = {};
    CHECK(watch.expired());
}

TEST_CASE("A tensor is alone as long as nothing else keeps its memory, and its owner says so", "[tensor_ref]") {
    const auto made = [](TensorRef::IsAlone is_alone) {
        auto memory = std::make_shared<std::array<std::int32_t, 24>>(numbers());
        std::int32_t* const data = memory->data();
        return TensorRef(data, DType::int32, {24}, {}, {}, std::move(memory), is_alone);
    };
    const TensorRef tensor = made([](const void*) { return true; });
    CHECK(tensor.is_alone());
    CHECK_FALSE(tensor.slice(0, 3).is_alone());
    CHECK(tensor.is_alone());
    const TensorRef copy = tensor;
    CHECK_FALSE(tensor.is_alone());
    CHECK_FALSE(made([](const void*) { return false; }).is_alone());
    CHECK_FALSE(made(nullptr).is_alone());
    CHECK_FALSE(TensorRef(numbers().data(), DType::int32, {24}).is_alone());
}

TEST_CASE("A view of a server's tensor is not that tensor any more", "[tensor_ref]") {
    const TensorRef plain(numbers().data(), DType::int32, {24}), result = plain.with_lease("l-1");
    CHECK(ref(result).name == "l-1");
    for (const TensorRef& other : {result.slice(0, 24), plain, TensorRef()})
        CHECK_THROWS_AS(ref(other), std::invalid_argument);
}

TEST_CASE("Any library's tensor stands for a TensorRef once it has an adapter", "[tensor_ref]") {
    const Foreign foreign{TensorRef(numbers().data(), DType::int32, {24})};
    const TensorRef there = foreign;
    const Foreign back = there;
    CHECK(back.ref.data() == foreign.ref.data());
    CHECK(there.as<Foreign>().ref.elements() == 24);
    STATIC_CHECK(Shareable<Foreign>);
    STATIC_CHECK(Shareable<TensorRef>);
}

TEST_CASE("Every dtype is found by its name", "[tensor_ref]") {
    for (std::size_t i = 0; i < kDTypes; ++i) {
        const auto dtype = static_cast<DType>(i);
        CHECK(parse_dtype(name_of(dtype)) == dtype);
    }
    CHECK(name_of(DType::float32) == "float32");
    CHECK(size_of(DType::complex128) == 16);
    CHECK(is_complex(DType::complex32));
    CHECK_FALSE(is_complex(DType::float8_e4m3fn));
    CHECK(is_floating_point(DType::bfloat16));
    CHECK_FALSE(is_floating_point(DType::complex64));
    CHECK_FALSE(is_floating_point(DType::int64));
}
