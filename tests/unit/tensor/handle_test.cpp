#include "tensor/handle.hpp"

#include <catch2/catch_test_macros.hpp>
#include <new>
#include <shared_tensor/value.hpp>

#include "support/tensors.hpp"

using namespace shared_tensor;
using namespace shared_tensor::tensor;
using namespace shared_tensor::test;

namespace {

std::string key_of(const TensorRef& tensor) {
    std::string key;
    REQUIRE(make_handle(tensor)->append_key(key));
    return key;
}

std::string digest_of(const TensorRef& tensor) {
    std::string digest;
    make_handle(tensor)->append_digest(digest);
    return digest;
}

}  // namespace

TEST_CASE("no tensor at all is rejected", "[tensor]") {
    CHECK_THROWS_AS(make_handle(TensorRef()), InvalidValue);
    TensorRef moved = zeros(DType::float32, {2});
    const TensorRef there = std::move(moved);
    CHECK_THROWS_AS(make_handle(moved), InvalidValue);  // NOLINT(bugprone-use-after-move): that is the test
}

TEST_CASE("a handle counts the bytes of its elements, not of the memory that they are a part of", "[tensor]") {
    CHECK(make_handle(zeros(DType::float32, {1000, 1000}).select(3))->bytes() == 4000);
    CHECK(make_handle(strided(zeros(DType::float32, {1}), {7}, {0}))->bytes() == 28);
    CHECK(make_handle(zeros(DType::float32, {}))->bytes() == 4);
    CHECK(make_handle(zeros(DType::float32, {0, 5}))->bytes() == 0);
    CHECK_FALSE(make_handle(zeros(DType::float32, {1}))->on_device());
}

TEST_CASE("keys and digests are equal for equal dtype, shape and elements, however they lie in memory", "[tensor]") {
    const TensorRef tensor = arange<float>({2, 3});
    const TensorRef turned = transposed(tensor_of<float>({0, 3, 1, 4, 2, 5}, {3, 2}));
    const TensorRef integers(tensor.mutable_data(), DType::int32, {2, 3}, {}, {}, tensor.owner());
    const TensorRef other = tensor_of<float>({0, 1, 2, 3, 4, 6}, {2, 3});
    for (const auto& text_of : {&key_of, &digest_of}) {
        CHECK(text_of(tensor) == text_of(arange<float>({2, 3})));
        CHECK(text_of(tensor) == text_of(turned));
        CHECK(text_of(tensor) != text_of(strided(tensor, {3, 2})));
        CHECK(text_of(tensor) != text_of(integers));
        CHECK(text_of(tensor) != text_of(other));
        CHECK(text_of(tensor_of<float>({0})) != text_of(tensor_of<float>({-0.0F})));
    }
}

TEST_CASE("a tensor above a mebibyte has no key, but a short digest of every byte", "[tensor]") {
    std::string key;
    CHECK(make_handle(zeros(DType::uint8, {1 << 20}))->append_key(key));
    key.clear();
    const TensorRef large = zeros(DType::uint8, {(1 << 20) + 1});
    CHECK_FALSE(make_handle(large)->append_key(key));
    CHECK(key.empty());
    const std::string before = digest_of(large);
    CHECK(before.size() < 100);
    large.mutable_data()[12345] = std::byte{1};
    CHECK(digest_of(large) != before);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // they end the process where memory runs out
TEST_CASE("no memory is std::bad_alloc", "[tensor]") {
    CHECK_THROWS_AS(allocate(DType::uint8, Shape{std::int64_t{1} << 50}), std::bad_alloc);
}
#endif
