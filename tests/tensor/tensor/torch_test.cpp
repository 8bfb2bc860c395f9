// at::Tensor from and to TensorRef: every dtype, shape and stride, and what is no plain value.

#include <ATen/ATen.h>  // before Catch, whose CHECK libtorch would replace by its own

#include <bit>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <cmath>
#include <cstring>
#include <random>

#include <shared_tensor/torch.hpp>
#include <shared_tensor/value.hpp>

#include "support/tensors.hpp"
#include "tensor/element.hpp"
#include "tensor/layout.hpp"

using namespace shared_tensor;
using namespace shared_tensor::tensor;
using namespace shared_tensor::test;

namespace {

TensorRef ones() {
    const TensorRef made = tensor::allocate(DType::float32, tensor::Shape{100});
    made.as<at::Tensor>().fill_(1);
    return made;
}

class Random {
public:
    explicit Random(unsigned seed) : engine_(seed) {}
    std::int64_t below(std::int64_t bound) {
        return std::uniform_int_distribution<std::int64_t>(0, bound - 1)(engine_);
    }

    /// Any bits: all numbers, infinities and NaNs of the type among them (NaNs made canonical, since JSON has one
    /// only).
    at::Tensor tensor(DType dtype, const std::vector<std::int64_t>& shape) {
        at::Tensor bytes = at::empty(shape, at::TensorOptions(scalar_type(dtype)));
        auto* data = static_cast<std::uint8_t*>(bytes.mutable_data_ptr());
        for (std::size_t i = 0; i < bytes.nbytes(); ++i) {
            data[i] = static_cast<std::uint8_t>(dtype == DType::bool_ ? below(2) : below(256));
        }
        return bytes;
    }

    std::vector<std::int64_t> shape() {
        std::vector<std::int64_t> sizes(static_cast<std::size_t>(below(5)));
        for (auto& size : sizes)
            size = below(8) == 0 ? 0 : 1 + below(5);
        return sizes;
    }

    /// A view that torch's own operators could have made: permuted, cut, repeated.
    at::Tensor view_of(at::Tensor tensor) {
        for (std::int64_t i = 0; i < tensor.dim(); ++i) {
            tensor = tensor.transpose(i, below(tensor.dim()));
            if (below(3) == 0 && tensor.size(i) > 1) tensor = tensor.slice(i, below(2), tensor.size(i), 1 + below(2));
            if (below(4) == 0 && tensor.size(i) > 0) tensor = tensor.select(i, 0).unsqueeze(i).expand(tensor.sizes());
        }
        return tensor;
    }

private:
    std::mt19937 engine_;
};

/// As numbers: the same but for which NaN it is.
bool same_numbers(at::Tensor a, at::Tensor b, DType dtype) {
    if (a.scalar_type() != b.scalar_type() || a.sizes() != b.sizes()) return false;
    if (dtype < DType::float16) return identical(a, b);
    if (is_complex(dtype)) {
        a = at::view_as_real(a);
        b = at::view_as_real(b);
    }
    a = a.to(at::kDouble);
    b = b.to(at::kDouble);
    const at::Tensor same = (a == b).logical_and(at::signbit(a) == at::signbit(b));
    return same.logical_or(at::isnan(a).logical_and(at::isnan(b))).all().item<bool>();
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

TEST_CASE("the memory of an imported tensor is never resized", "[torch]") {
    at::Tensor tensor = receive(send(at::ones({4}), only(TransportKind::body)));
    CHECK_FALSE(tensor.storage().resizable());
    CHECK_THROWS(tensor.resize_({100}));
}

TEST_CASE("a tensor of any dtype, shape and strides arrives bit for bit by body and by base64, and its numbers as text",
          "[tensor]") {
    const TransportKind transport = GENERATE(TransportKind::body, TransportKind::base64, TransportKind::data);
    const auto dtype = static_cast<DType>(GENERATE(range(std::size_t{0}, kDTypes)));
    const bool as_text = transport == TransportKind::data;
    if (as_text && dtype == DType::float4_e2m1fn_x2) return;  // it has no form as lists
    Random random(static_cast<unsigned>(dtype) + 1);
    for (int round = 0; round < 40; ++round) {
        const at::Tensor tensor = random.view_of(random.tensor(dtype, random.shape()));
        const Message message = send(tensor, only(transport));
        INFO(message.json);
        REQUIRE((as_text ? same_numbers(receive(message), tensor, dtype) : identical(receive(message), tensor)));
    }
}

TEST_CASE("every dtype is found by torch's number, with torch's size", "[tensor]") {
    for (std::size_t i = 0; i < kDTypes; ++i) {
        const auto dtype = static_cast<DType>(i);
        INFO(name_of(dtype));
        CHECK(dtype_of(scalar_type(dtype)) == dtype);
        CHECK(size_of(dtype) == c10::elementSize(scalar_type(dtype)));
    }
}

TEST_CASE("types without a plain meaning can't cross", "[tensor]") {
    for (const auto type :
         {c10::ScalarType::QInt8, c10::ScalarType::QUInt8, c10::ScalarType::Bits8, c10::ScalarType::UInt4}) {
        CHECK_FALSE(dtype_of(type).has_value());
    }
    for (const auto* name : {"", "float", "Float32", "float32 ", "qint8", "torch.float32"})
        CHECK_FALSE(parse_dtype(name).has_value());
}

TEST_CASE("every type that torch has with values of its own is in the table", "[tensor]") {
    std::size_t without = 0;
    for (int i = 0; i < static_cast<int>(c10::ScalarType::Undefined); ++i) {
        const auto type = static_cast<c10::ScalarType>(i);
        const std::string name = c10::toString(type);
        const bool placeholder = c10::isQIntType(type) || c10::isBitsType(type) || c10::isBarebonesUnsignedType(type);
        if (placeholder && !dtype_of(type)) ++without;
        if (!placeholder && !dtype_of(type)) {
            INFO(name);
            CHECK((name.starts_with("Int") || name.starts_with("UInt")));
        }
    }
    CHECK(without > 0);
}

namespace {

/// A number of ours and torch's of the same bits are the same one, and every float becomes the same bits in both.
template <class Ours, class Torchs, class Bits>
void compare() {
    std::size_t wrong = 0;
    const auto bits_of = [](Torchs number) {
        Bits bits{};
        std::memcpy(&bits, &number, sizeof bits);
        return bits;
    };
    for (std::uint32_t pattern = 0; pattern < std::uint32_t{1} << (8 * sizeof(Bits)); ++pattern) {
        Ours ours;
        Torchs torchs;
        const auto bits = static_cast<Bits>(pattern);
        ours.bits = bits;
        std::memcpy(&torchs, &bits, sizeof bits);
        const auto a = static_cast<float>(ours), b = static_cast<float>(torchs);
        wrong += (std::isnan(a) && std::isnan(b)) || std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b)
                     ? 0
                     : 1;
    }
    for (std::uint64_t pattern = 0; pattern < std::uint64_t{1} << 32; pattern += 997) {
        const auto value = std::bit_cast<float>(static_cast<std::uint32_t>(pattern));
        const Ours ours(value);
        const Torchs torchs(value);
        const bool both_nan = std::isnan(static_cast<float>(ours)) && std::isnan(static_cast<float>(torchs));
        wrong += both_nan || ours.bits == bits_of(torchs) ? 0 : 1;
    }
    CHECK(wrong == 0);
}

}  // namespace

TEST_CASE("narrow numbers are read and rounded as torch does", "[tensor]") {
    compare<tensor::Float16, c10::Half, std::uint16_t>();
    compare<tensor::BFloat16, c10::BFloat16, std::uint16_t>();
    compare<tensor::Float8E4M3Fn, c10::Float8_e4m3fn, std::uint8_t>();
    compare<tensor::Float8E4M3Fnuz, c10::Float8_e4m3fnuz, std::uint8_t>();
    compare<tensor::Float8E5M2, c10::Float8_e5m2, std::uint8_t>();
    compare<tensor::Float8E5M2Fnuz, c10::Float8_e5m2fnuz, std::uint8_t>();
    compare<tensor::Float8E8M0, c10::Float8_e8m0fnu, std::uint8_t>();
}
