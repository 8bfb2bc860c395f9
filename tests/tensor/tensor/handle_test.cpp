#include "tensor/handle.hpp"

#include <ATen/ATen.h>

#include <catch2/catch_test_macros.hpp>
#include <shared_tensor/torch.hpp>
#include <shared_tensor/value.hpp>

#include "tensor/memory.hpp"
#include "wire.hpp"

using namespace shared_tensor;
using namespace shared_tensor::tensor;
using namespace shared_tensor::test;

namespace {

std::string rejection(const at::Tensor& tensor) {
    try {
        make_handle(tensor);
    } catch (const InvalidValue& error) {
        return error.got;
    }
    return "(taken)";
}

std::string key_of(const at::Tensor& tensor) {
    std::string key;
    REQUIRE(make_handle(tensor)->append_key(key));
    return key;
}

}  // namespace

TEST_CASE("tensors that are not plain values are rejected with the way out", "[tensor]") {
    CHECK(rejection(at::Tensor()) == "an undefined tensor (return std::optional<at::Tensor> for none)");
    CHECK(rejection(at::ones({2, 2}).to_sparse()) == "a sparse tensor (call to_dense() first)");
    CHECK(rejection(at::ones({2, 2}).to_sparse_csr()) == "a sparse tensor (call to_dense() first)");
    CHECK(rejection(at::quantize_per_tensor(at::ones({2}), 0.1, 0, at::kQInt8)) ==
          "a quantised tensor (call dequantize() first)");
    CHECK(rejection(at::empty({2}, at::device(at::kMeta))) == "a meta tensor, which has no values");
    CHECK(rejection(at::empty({2}, at::ScalarType::Bits8)) == "a tensor of dtype Bits8");
    CHECK(rejection(at::_nested_tensor_from_tensor_list({at::ones({2}), at::ones({3})})) ==
          "a nested tensor (call to_padded_tensor() first)");
}

TEST_CASE("no tensor at all is rejected", "[tensor]") {
    CHECK_THROWS_AS(make_handle(TensorRef()), InvalidValue);
    TensorRef moved = at::ones({2});
    const TensorRef there = std::move(moved);
    CHECK_THROWS_AS(make_handle(moved), InvalidValue);  // NOLINT(bugprone-use-after-move): that is the test
}

TEST_CASE("a tensor with a history of gradients leaves it behind, without a copy", "[tensor]") {
    const at::Tensor tensor = at::ones({3}).requires_grad_();
    const auto handle = make_handle(tensor);
    CHECK_FALSE(handle->tensor().as<at::Tensor>().requires_grad());
    CHECK(handle->tensor().as<at::Tensor>().const_data_ptr() == tensor.const_data_ptr());
}

TEST_CASE("lazy conjugation and negation are carried out", "[tensor]") {
    const at::Tensor numbers = at::complex(at::arange(3, at::kFloat), at::arange(3, at::kFloat) + 1);
    const at::Tensor conjugate = numbers.conj();
    REQUIRE(conjugate.is_conj());
    CHECK(identical(make_handle(conjugate)->tensor(), conjugate.resolve_conj()));
    const at::Tensor negative = at::imag(conjugate);
    REQUIRE(negative.is_neg());
    CHECK(identical(make_handle(negative)->tensor(), negative.resolve_neg()));
    const Stream stream = send(conjugate, only(TransportKind::data));
    CHECK(Json::parse(stream.json)["data"].dump() == "[[0.0,-1.0],[1.0,-2.0],[2.0,-3.0]]");
}

TEST_CASE("a handle counts the bytes of its elements, not of the memory that they are a part of", "[tensor]") {
    CHECK(make_handle(at::zeros({1000, 1000}).select(0, 3))->bytes() == 4000);
    CHECK(make_handle(at::zeros({1}).expand({7}))->bytes() == 28);
    CHECK(make_handle(at::zeros({}))->bytes() == 4);
    CHECK(make_handle(at::zeros({0, 5}))->bytes() == 0);
    CHECK_FALSE(make_handle(at::zeros({1}))->on_device());
}

TEST_CASE("keys are equal for equal dtype, shape and elements, however they lie in memory", "[tensor]") {
    const at::Tensor tensor = at::arange(6, at::kFloat).view({2, 3});
    CHECK(key_of(tensor) == key_of(tensor.clone()));
    CHECK(key_of(tensor) == key_of(tensor.t().contiguous().t()));
    CHECK(key_of(tensor) != key_of(tensor.view({3, 2})));
    CHECK(key_of(tensor) != key_of(tensor.view(at::kInt)));
    CHECK(key_of(tensor) != key_of(tensor + 1));
    CHECK(key_of(at::zeros({1})) != key_of(at::full({1}, -0.0)));
}

TEST_CASE("a tensor above a mebibyte has no key", "[tensor]") {
    std::string key;
    CHECK(make_handle(at::zeros({1 << 20}, at::kByte))->append_key(key));
    key.clear();
    CHECK_FALSE(make_handle(at::zeros({(1 << 20) + 1}, at::kByte))->append_key(key));
    CHECK(key.empty());
}

TEST_CASE("tensors of any size have digests that tell dtype, shape and every byte apart", "[tensor]") {
    const auto digest_of = [](const at::Tensor& tensor) {
        std::string digest;
        make_handle(tensor)->append_digest(digest);
        return digest;
    };
    const at::Tensor tensor = at::arange(1 << 20);
    at::Tensor other = tensor.clone();
    CHECK(digest_of(tensor) == digest_of(other));
    CHECK(digest_of(tensor.t().view({2, -1}).t()) == digest_of(tensor.view({2, -1}).t().contiguous()));
    other[12345] += 1;
    CHECK(digest_of(tensor) != digest_of(other));
    CHECK(digest_of(tensor) != digest_of(tensor.view({2, -1})));
    CHECK(digest_of(tensor) != digest_of(tensor.view(at::kDouble)));
    CHECK(digest_of(tensor).size() < 100);
}

TEST_CASE("no memory is std::bad_alloc, not torch's own error", "[tensor]") {
    CHECK_THROWS_AS(allocate(DType::uint8, Shape{std::int64_t{1} << 50}), std::bad_alloc);
}
