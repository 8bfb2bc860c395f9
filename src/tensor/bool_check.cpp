#include "tensor/bool_check.hpp"

#include <shared_tensor/value.hpp>
#include <span>
#include <string>
#include <vector>

namespace shared_tensor::tensor {

namespace {

bool all_bools(std::span<const std::byte> bytes) {
    std::byte seen{0};
    for (const std::byte byte : bytes)
        seen |= byte;  // no early exit, so that the compiler vectorizes the loop
    return seen <= std::byte{1};
}

}  // namespace

bool has_odd_bools(DType dtype, ShapeView shape, ShapeView strides, const std::byte* data) {
    const auto extent = extent_of(shape, strides, 1);
    if (dtype != DType::bool_ || !extent || extent->elements == 0) return false;
    if (all_bools({data, static_cast<std::size_t>(extent->reach)})) return false;
    if (strides.empty()) return true;
    // The other bytes may be in gaps between the elements.
    std::vector<std::byte> elements(static_cast<std::size_t>(extent->elements));
    gather(data, shape, strides, 1, elements.data());
    return !all_bools(elements);
}

void check_bools(const Descriptor& descriptor, const std::byte* data) {
    if (!has_odd_bools(descriptor.dtype, descriptor.shape, descriptor.strides, data)) return;
    throw InvalidValue(std::string(name_of(descriptor.transport)), "bytes 0 and 1 for dtype bool", "other bytes");
}

}  // namespace shared_tensor::tensor
