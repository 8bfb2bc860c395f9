// at::Tensor from and to TensorRef.

#include <ATen/ATen.h>

#include <catch2/catch_test_macros.hpp>

#include <shared_tensor/torch.hpp>

#include "tensor/memory.hpp"

using namespace shared_tensor;

namespace {

TensorRef ones() {
    const TensorRef made = tensor::allocate(DType::float32, tensor::Shape{100});
    made.as<at::Tensor>().fill_(1);
    return made;
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
