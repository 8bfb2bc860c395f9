// A plugin that is linked to a libtorch of its own, and takes tensors without any. Its names end with its number.

#include <shared_tensor/share.hpp>
#include <shared_tensor/shared_memory.hpp>
#include <shared_tensor/tensor_ref.hpp>

extern "C" int stub_torch_number();

namespace {

int number() { return stub_torch_number(); }
SHARE_AS("number_" STUB_NUMBER, number);

/// The bytes of its argument, counted, for functions that look at them themselves.
std::vector<std::int64_t> layout(const shared_tensor::TensorRef& x) {
    return {static_cast<std::int64_t>(x.bytes()), static_cast<std::int64_t>(x.rank()), x.is_contiguous() ? 1 : 0};
}
SHARE_AS("layout_" STUB_NUMBER, layout, arg("x"));

shared_tensor::TensorRef twice(const shared_tensor::TensorRef& x) {
    if (x.dtype() != shared_tensor::DType::float32 || !x.is_contiguous())
        throw std::invalid_argument("a contiguous float32 tensor is expected");
    const auto made = shared_tensor::empty_in_shared_memory(x.shape(), x.dtype());
    const auto* from = reinterpret_cast<const float*>(x.data());
    auto* to = reinterpret_cast<float*>(made.mutable_data());
    for (std::uint64_t i = 0; i < x.elements(); ++i)
        to[i] = 2 * from[i];
    return made;
}
SHARE_AS("twice_" STUB_NUMBER, twice, arg("x"));

}  // namespace
