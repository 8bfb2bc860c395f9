#include <ATen/ATen.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_adapters.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <random>
#include <shared_tensor/torch.hpp>

#include "support/tensors.hpp"

using namespace shared_tensor;
using namespace shared_tensor::tensor;
using namespace shared_tensor::test;

namespace {

std::vector<DType> all_dtypes() {
    std::vector<DType> dtypes;
    for (std::size_t i = 0; i < kDTypes; ++i)
        dtypes.push_back(static_cast<DType>(i));
    return dtypes;
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

}  // namespace

TEST_CASE("a tensor of any dtype, shape and strides arrives bit for bit by body and by base64", "[tensor]") {
    const TransportKind transport = GENERATE(TransportKind::body, TransportKind::base64);
    const DType dtype = GENERATE(from_range(all_dtypes()));
    Random random(static_cast<unsigned>(dtype) + 1);
    for (int round = 0; round < 40; ++round) {
        const at::Tensor tensor = random.view_of(random.tensor(dtype, random.shape()));
        const Message stream = send(tensor, only(transport));
        INFO(stream.json);
        REQUIRE(identical(receive(stream), tensor));
    }
}

TEST_CASE("numbers of any dtype arrive exactly as text", "[tensor]") {
    const DType dtype =
        GENERATE(filter([](DType each) { return each != DType::float4_e2m1fn_x2; }, from_range(all_dtypes())));
    Random random(static_cast<unsigned>(dtype) + 100);
    for (int round = 0; round < 40; ++round) {
        const at::Tensor tensor = random.view_of(random.tensor(dtype, random.shape()));
        const Message stream = send(tensor, only(TransportKind::data));
        INFO(stream.json);
        REQUIRE(same_numbers(receive(stream), tensor, dtype));
    }
}
