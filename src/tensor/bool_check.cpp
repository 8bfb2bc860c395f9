#include "tensor/bool_check.hpp"

#include <algorithm>
#include <string>
#include <vector>

namespace shared_tensor::tensor {

namespace {

bool all_bools(std::span<const std::byte> bytes) {
    std::byte seen{0};
    for (const std::byte byte : bytes)
        seen |= byte;  // no early end: the compiler makes vector code of it
    return seen <= std::byte{1};
}

}  // namespace

void check_bools(const Descriptor& descriptor, const std::byte* data) {
    if (descriptor.dtype != DType::bool_ || descriptor.extent.elements == 0) return;
    if (all_bools({data, static_cast<std::size_t>(descriptor.extent.reach)})) return;
    if (!descriptor.strides.empty()) {  // the odd bytes may lie between the elements
        std::vector<std::byte> elements(static_cast<std::size_t>(descriptor.extent.elements));
        gather(data, descriptor.shape, descriptor.strides, 1, elements.data());
        if (all_bools(elements)) return;
    }
    throw InvalidValue(std::string(name_of(descriptor.way)), "bytes 0 and 1 for dtype bool", "other bytes");
}

}  // namespace shared_tensor::tensor
