// at::Tensor from and to TensorRef.

#include <ATen/ATen.h>

#include <catch2/catch_test_macros.hpp>

#include <shared_tensor/torch.hpp>
#include <shared_tensor/value.hpp>

#include "support/tensors.hpp"

using namespace shared_tensor;
using namespace shared_tensor::tensor;
using namespace shared_tensor::test;

namespace {

TensorRef ones() {
    const TensorRef made = tensor::allocate(DType::float32, tensor::Shape{100});
    made.as<at::Tensor>().fill_(1);
    return made;
}

std::string rejection(const at::Tensor& tensor) {
    try {
        make_handle(tensor);
    } catch (const InvalidValue& error) {
        return error.got;
    }
    return "(taken)";
}

}  // namespace

TEST_CASE("A tensor that goes to and fro a hundred thousand times is the same one, and grows no chain", "[torch]") {
    TensorRef state = ones();
    const std::byte* const data = state.data();
    for (int i = 0; i < 100'000; ++i) {
        const at::Tensor x = state;
        state = i % 2 == 0 ? TensorRef(x) : TensorRef(x.view({10, 10}).view({100}));
    }
    CHECK(state.data() == data);
    CHECK(state.as<at::Tensor>().sum().item<float>() == 100);
    state = {};  // not by a hundred thousand destructors inside each other
}

TEST_CASE("A view of a tensor that the library made keeps its memory, and tells its own layout", "[torch]") {
    TensorRef made = ones();
    const std::byte* const data = made.data();
    const TensorRef part = made.as<at::Tensor>().slice(0, 10, 20);
    made = {};
    CHECK(part.data() == data + 40);
    CHECK(part.elements() == 10);
    CHECK(part.as<at::Tensor>().sum().item<float>() == 10);
}

TEST_CASE("A tensor that a function keeps is not alone", "[torch]") {
    const at::Tensor kept = at::ones({100});
    const TensorRef ref = kept;
    CHECK_FALSE(ref.is_alone());
    const TensorRef own = TensorRef(at::ones({100}));
    CHECK(own.is_alone());
    TensorRef made = ones();
    CHECK(made.is_alone());
    {
        const at::Tensor view = made;
        CHECK_FALSE(made.is_alone());
    }
    CHECK(made.is_alone());
}

TEST_CASE("tensors that are not plain values are rejected with the way out", "[torch]") {
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

TEST_CASE("a tensor with a history of gradients leaves it behind, without a copy", "[torch]") {
    const at::Tensor tensor = at::ones({3}).requires_grad_();
    const auto handle = make_handle(tensor);
    CHECK_FALSE(handle->tensor().as<at::Tensor>().requires_grad());
    CHECK(handle->tensor().as<at::Tensor>().const_data_ptr() == tensor.const_data_ptr());
}

TEST_CASE("lazy conjugation and negation are carried out", "[torch]") {
    const at::Tensor numbers = at::complex(at::arange(3, at::kFloat), at::arange(3, at::kFloat) + 1);
    const at::Tensor conjugate = numbers.conj();
    REQUIRE(conjugate.is_conj());
    CHECK(identical(make_handle(conjugate)->tensor(), conjugate.resolve_conj()));
    const at::Tensor negative = at::imag(conjugate);
    REQUIRE(negative.is_neg());
    CHECK(identical(make_handle(negative)->tensor(), negative.resolve_neg()));
    const Message stream = send(conjugate, only(TransportKind::data));
    CHECK(Json::parse(stream.json)["data"].dump() == "[[0.0,-1.0],[1.0,-2.0],[2.0,-3.0]]");
}

TEST_CASE("the memory of an imported tensor is never resized", "[torch]") {
    at::Tensor tensor = receive(send(at::ones({4}), only(TransportKind::body)));
    CHECK_FALSE(tensor.storage().resizable());
    CHECK_THROWS(tensor.resize_({100}));
}
